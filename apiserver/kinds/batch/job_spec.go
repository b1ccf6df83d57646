package batch

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/labelselector"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// Bounds, so that the status can name all indexes.
const (
	// mostAtOnce pods of an Indexed Job run at once, and mostFailed of its indexes may fail.
	mostAtOnce = 100_000
	mostFailed = 100_000
	// A Job with more than manyIndexes, which can fail one by one, runs fewAtOnce and lets fewFailed fail.
	manyIndexes = 100_000
	fewAtOnce   = 10_000
	fewFailed   = 10_000

	mostRules      = 20
	mostExitCodes  = 255
	mostConditions = 20
	longestIndexes = 64 * 1024
	longestManager = 63
)

// ValidateJob checks a Job that is to be created, as it is after DefaultNewJob.
func ValidateJob(o *batchv1.Job) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkJob(f, o, nil)
	}
	return f.Causes()
}

// ValidateJobUpdate checks that a change of a Job is allowed. What a Job is to run is decided when it is created;
// parallelism, limits, deadlines and suspend may change.
func ValidateJobUpdate(new, old *batchv1.Job) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkJob(f, new, old)
		checkJobChange(f, f.Root("spec"), new, old)
	}
	return f.Causes()
}

func checkJob(f *validation.Faults, o, old *batchv1.Job) {
	m, s, at := o.GetMetadata(), o.GetSpec(), f.Root("spec")
	f.CoreMeta(m, old.GetMetadata(), true, validation.NameIsSubdomain)
	checkGenerated(f, o, old)
	checkJobSpec(f, at, s)
	if s.GetSelector() == nil {
		f.Required(at.Child("selector"), "")
	} else {
		f.LabelSelector(at.Child("selector"), s.GetSelector())
	}
	if selector, err := labelselector.Of(s.GetSelector()); err == nil {
		matched(f, at.Child("template"), s.GetTemplate(), selector)
	}
	if jobs.IsIndexed(s) && s.GetCompletions() > 0 {
		hostname := fmt.Sprintf("%s-%d", m.GetName(), s.GetCompletions()-1)
		if len(utilvalidation.IsDNS1123Label(hostname)) > 0 {
			f.Invalid(f.Root("metadata").Child("name"), m.GetName(),
				"will not able to create pod with invalid DNS label: "+hostname)
		}
	}
}

func matched(f *validation.Faults, at *validation.Path, t *corev1.PodTemplateSpec, selector labels.Selector) {
	if set := t.GetMetadata().GetLabels(); !selector.Matches(labels.Set(set)) {
		f.InvalidValue(at.Child("metadata").Child("labels"), set, "`selector` does not match template `labels`")
	}
}

// checkGenerated checks that the labels and the selector of a Job without a manual selector are those that the server
// makes. A Job that did not have all of the labels need not get them.
func checkGenerated(f *validation.Faults, o, old *batchv1.Job) {
	m, s, at := o.GetMetadata(), o.GetSpec(), f.Root("spec")
	if s.GetManualSelector() || s.GetSelector() == nil {
		return
	}
	if m.GetUid() == "" {
		f.Required(f.Root("metadata").Child("uid"), "")
	}
	want := map[string]string{jobs.OldUIDLabel: m.GetUid(), jobs.OldNameLabel: m.GetName()}
	names := []string{jobs.OldUIDLabel, jobs.OldNameLabel}
	had := old.GetSpec().GetTemplate().GetMetadata().GetLabels()
	_, name := had[jobs.NameLabel]
	_, uid := had[jobs.UIDLabel]
	if old == nil || name && uid {
		want[jobs.UIDLabel], want[jobs.NameLabel] = m.GetUid(), m.GetName()
		names = append(names, jobs.UIDLabel, jobs.NameLabel)
	}
	has, place := s.GetTemplate().GetMetadata().GetLabels(), at.Child("template").Child("metadata").Child("labels")
	for _, name := range names {
		switch v, found := has[name]; {
		case !found:
			f.Required(place.Key(name), fmt.Sprintf("must be '%s'", want[name]))
		case v != want[name]:
			f.InvalidValue(place.Key(name), has, fmt.Sprintf("must be '%s'", want[name]))
		}
	}
	if selector, err := labelselector.Of(s.GetSelector()); err == nil && !selector.Matches(labels.Set(want)) {
		f.Invalid(at.Child("selector"), s.GetSelector().String(), "`selector` not auto-generated")
	}
}

// checkJobSpec checks what a Job and a template of Jobs have in common: all but the selector.
func checkJobSpec(f *validation.Faults, at *validation.Path, s *batchv1.JobSpec) {
	f.NotNegative(at.Child("parallelism"), int64(s.GetParallelism()))
	f.NotNegative(at.Child("completions"), int64(s.GetCompletions()))
	f.NotNegative(at.Child("activeDeadlineSeconds"), s.GetActiveDeadlineSeconds())
	f.NotNegative(at.Child("backoffLimit"), int64(s.GetBackoffLimit()))
	f.NotNegative(at.Child("ttlSecondsAfterFinished"), int64(s.GetTtlSecondsAfterFinished()))
	f.NotNegative(at.Child("backoffLimitPerIndex"), int64(s.GetBackoffLimitPerIndex()))
	f.NotNegative(at.Child("maxFailedIndexes"), int64(s.GetMaxFailedIndexes()))
	if s == nil {
		s = &batchv1.JobSpec{}
	}
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		f.Required(at.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if s.ManagedBy != nil {
		for _, e := range utilvalidation.IsDomainPrefixedPath(nil, *s.ManagedBy) {
			f.Add(at.Child("managedBy"), e)
		}
		if len(*s.ManagedBy) > longestManager {
			f.TooLong(at.Child("managedBy"), longestManager)
		}
	}
	checkMode(f, at, s)
	if s.PodFailurePolicy != nil {
		checkFailurePolicy(f, at.Child("podFailurePolicy").Child("rules"), s)
	}
	if s.SuccessPolicy != nil {
		if jobs.IsIndexed(s) {
			checkSuccessPolicy(f, at.Child("successPolicy").Child("rules"), s)
		} else {
			f.Invalid(at.Child("successPolicy"), s.SuccessPolicy.String(), "requires indexed completion mode")
		}
	}
	if s.PodReplacementPolicy != nil {
		if s.PodFailurePolicy != nil {
			f.OneOf(at.Child("podReplacementPolicy"), *s.PodReplacementPolicy, jobs.Failed)
		} else {
			f.OneOf(at.Child("podReplacementPolicy"), *s.PodReplacementPolicy, jobs.Failed, jobs.TerminatingOrFailed)
		}
	}
	podspec.CheckTemplate(f, at.Child("template"), s.Template)
	checkRestarts(f, at.Child("template").Child("spec").Child("restartPolicy"), s)
}

func checkRestarts(f *validation.Faults, at *validation.Path, s *batchv1.JobSpec) {
	switch policy := s.GetTemplate().GetSpec().GetRestartPolicy(); {
	case policy == "Always" || policy == "":
		f.Required(at, `valid values: "OnFailure", "Never"`)
	case policy != "OnFailure" && policy != "Never":
		f.OneOf(at, policy, "OnFailure", "Never")
	case policy != "Never" && s.PodFailurePolicy != nil:
		f.Invalid(at, policy, `only "Never" is supported when podFailurePolicy is specified`)
	}
}

// checkMode checks the fields that depend on whether the pods have indexes.
func checkMode(f *validation.Faults, at *validation.Path, s *batchv1.JobSpec) {
	if s.CompletionMode != nil {
		f.OneOf(at.Child("completionMode"), *s.CompletionMode, jobs.NonIndexed, jobs.Indexed)
	}
	parallelism, failures := at.Child("parallelism"), at.Child("maxFailedIndexes")
	switch {
	case jobs.IsIndexed(s):
		if s.Completions == nil {
			f.Required(at.Child("completions"), "when completion mode is Indexed")
		}
		if s.GetParallelism() > mostAtOnce {
			f.InvalidValue(parallelism, *s.Parallelism,
				fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", mostAtOnce))
		}
		if s.Completions != nil && s.MaxFailedIndexes != nil && *s.MaxFailedIndexes > *s.Completions {
			f.InvalidValue(failures, *s.MaxFailedIndexes, "must be less than or equal to completions")
		}
		if s.GetMaxFailedIndexes() > mostFailed {
			f.InvalidValue(failures, *s.MaxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", mostFailed))
		}
		if s.GetCompletions() > manyIndexes && s.BackoffLimitPerIndex != nil {
			if s.MaxFailedIndexes == nil {
				f.Required(failures, fmt.Sprintf("must be specified when completions is above %d", manyIndexes))
			}
			beyond := fmt.Sprintf("when completions are above %d and used with backoff limit per index", manyIndexes)
			if s.GetParallelism() > fewAtOnce {
				f.InvalidValue(parallelism, *s.Parallelism,
					fmt.Sprintf("must be less than or equal to %d %s", fewAtOnce, beyond))
			}
			if s.GetMaxFailedIndexes() > fewFailed {
				f.InvalidValue(failures, *s.MaxFailedIndexes,
					fmt.Sprintf("must be less than or equal to %d %s", fewFailed, beyond))
			}
		}
	case s.CompletionMode == nil || *s.CompletionMode == jobs.NonIndexed:
		const only = "requires indexed completion mode"
		if s.BackoffLimitPerIndex != nil {
			f.InvalidValue(at.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, only)
		}
		if s.MaxFailedIndexes != nil {
			f.InvalidValue(failures, *s.MaxFailedIndexes, only)
		}
	}
}

func checkFailurePolicy(f *validation.Faults, at *validation.Path, s *batchv1.JobSpec) {
	rules := s.GetPodFailurePolicy().GetRules()
	if len(rules) > mostRules {
		f.Add(at, field.TooMany(nil, len(rules), mostRules))
	}
	names := make(map[string]bool)
	for _, list := range [][]*corev1.Container{
		s.GetTemplate().GetSpec().GetContainers(), s.GetTemplate().GetSpec().GetInitContainers(),
	} {
		for _, c := range list {
			names[c.GetName()] = true
		}
	}
	for i, r := range rules {
		at := at.Index(i)
		action := at.Child("action")
		switch {
		case r.GetAction() == "":
			f.Required(action, `valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`)
		case r.GetAction() == jobs.FailIndex && s.BackoffLimitPerIndex == nil:
			f.Invalid(action, r.GetAction(), "requires the backoffLimitPerIndex to be set")
		default:
			f.OneOf(action, r.GetAction(), jobs.Count, jobs.FailIndex, jobs.FailJob, jobs.Ignore)
		}
		codes, conditions := r.GetOnExitCodes(), r.GetOnPodConditions()
		if codes != nil {
			checkExitCodes(f, at.Child("onExitCodes"), codes, names)
		}
		checkPatterns(f, at.Child("onPodConditions"), conditions)
		switch {
		case codes != nil && len(conditions) > 0:
			f.InvalidValue(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		case codes == nil && len(conditions) == 0:
			f.InvalidValue(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func checkExitCodes(
	f *validation.Faults, at *validation.Path, r *batchv1.PodFailurePolicyOnExitCodesRequirement, names map[string]bool,
) {
	if r.GetOperator() == "" {
		f.Required(at.Child("operator"), `valid values: ["In" "NotIn"]`)
	} else {
		f.OneOf(at.Child("operator"), r.GetOperator(), jobs.In, jobs.NotIn)
	}
	if r.ContainerName != nil && !names[*r.ContainerName] {
		f.Invalid(at.Child("containerName"), *r.ContainerName,
			"must be one of the container or initContainer names in the pod template")
	}
	values, codes := at.Child("values"), r.GetValues()
	switch {
	case len(codes) == 0:
		f.InvalidValue(values, codes, "at least one value is required")
	case len(codes) > mostExitCodes:
		f.Add(values, field.TooMany(nil, len(codes), mostExitCodes))
	}
	seen := make(map[int32]bool, len(codes))
	for i, code := range codes {
		if r.GetOperator() == jobs.In && code == 0 {
			f.InvalidValue(values.Index(i), code, "must not be 0 for the In operator")
		}
		if seen[code] {
			f.Duplicate(values.Index(i), code)
		}
		seen[code] = true
	}
	if !slices.IsSorted(codes) {
		f.InvalidValue(values, codes, "must be ordered")
	}
}

func checkPatterns(
	f *validation.Faults, at *validation.Path, patterns []*batchv1.PodFailurePolicyOnPodConditionsPattern,
) {
	if len(patterns) > mostConditions {
		f.Add(at, field.TooMany(nil, len(patterns), mostConditions))
	}
	for i, p := range patterns {
		f.Qualified(at.Index(i).Child("type"), p.GetType())
		status := at.Index(i).Child("status")
		if p.GetStatus() == "" {
			f.Required(status, `valid values: ["False" "True" "Unknown"]`)
		} else {
			f.OneOf(status, p.GetStatus(), "False", "True", "Unknown")
		}
	}
}

func checkSuccessPolicy(f *validation.Faults, at *validation.Path, s *batchv1.JobSpec) {
	rules := s.GetSuccessPolicy().GetRules()
	if len(rules) == 0 {
		f.Required(at, "at least one rules must be specified when the successPolicy is specified")
	}
	if len(rules) > mostRules {
		f.Add(at, field.TooMany(nil, len(rules), mostRules))
	}
	for i, r := range rules {
		checkSuccessRule(f, at.Index(i), r, s.GetCompletions())
	}
}

func checkSuccessRule(f *validation.Faults, at *validation.Path, r *batchv1.SuccessPolicyRule, completions int32) {
	if r == nil || r.SucceededCount == nil && r.SucceededIndexes == nil {
		f.Required(at, "at least one of succeededCount or succeededIndexes must be specified")
		return
	}
	var listed indexes.Set
	if r.SucceededIndexes != nil {
		place := at.Child("succeededIndexes")
		if len(*r.SucceededIndexes) > longestIndexes {
			f.TooLong(place, longestIndexes)
		}
		var err error
		if listed, err = indexes.Parse(*r.SucceededIndexes, completions); err != nil {
			f.Invalid(place, *r.SucceededIndexes, "error parsing succeededIndexes: "+err.Error())
		}
	}
	if r.SucceededCount == nil {
		return
	}
	place, n := at.Child("succeededCount"), *r.SucceededCount
	f.NotNegative(place, int64(n))
	if n > completions {
		f.InvalidValue(place, n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)",
			completions))
	}
	if r.SucceededIndexes != nil && n > listed.Len() {
		f.InvalidValue(place, n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified "+
			"succeededIndexes field)", listed.Len()))
	}
}

// checkJobChange checks that what cannot change stays as it is.
func checkJobChange(f *validation.Faults, at *validation.Path, new, old *batchv1.Job) {
	next, was := new.GetSpec(), old.GetSpec()
	if next == nil || was == nil {
		return
	}
	if !jobs.IsIndexed(next) {
		validation.Fixed(f, at.Child("completions"), next.Completions, was.Completions)
	} else if next.Completions != nil && !validation.Same(next.Completions, was.Completions) &&
		*next.Completions != next.GetParallelism() {
		f.InvalidValue(at.Child("completions"), *next.Completions, "can only be modified in tandem with spec.parallelism")
	}
	same := func(name string, equal bool, now interface{ AppendJSON(b []byte) []byte }) {
		if !equal {
			f.Replaced(at.Child(name), now)
		}
	}
	same("selector", validation.Equal(next.GetSelector(), was.GetSelector()), next.GetSelector())
	checkTemplateChange(f, at.Child("template"), new, old)
	validation.Fixed(f, at.Child("completionMode"), next.CompletionMode, was.CompletionMode)
	failure, success := next.GetPodFailurePolicy(), next.GetSuccessPolicy()
	same("podFailurePolicy", (failure == nil) == (was.GetPodFailurePolicy() == nil) &&
		validation.Equal(failure, was.GetPodFailurePolicy()), failure)
	validation.Fixed(f, at.Child("backoffLimitPerIndex"), next.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	validation.Fixed(f, at.Child("managedBy"), next.ManagedBy, was.ManagedBy)
	same("successPolicy", (success == nil) == (was.GetSuccessPolicy() == nil) &&
		validation.Equal(success, was.GetSuccessPolicy()), success)
}

// checkTemplateChange checks a change of what the pods are made of. While a Job is suspended and none of its pods
// runs, it may be told where they may run and what they request, as those who admit Jobs one after the other need.
func checkTemplateChange(f *validation.Faults, at *validation.Path, new, old *batchv1.Job) {
	next, was, s := new.GetSpec().GetTemplate(), old.GetSpec().GetTemplate(), old.GetStatus()
	idle := old.GetSpec().GetSuspend() && (s.GetStartTime() == nil || jobs.Has(s, jobs.Suspended)) && s.GetActive() == 0
	if !idle {
		if !validation.Equal(next, was) {
			f.Invalid(at, next.GetMetadata().GetName(), validation.Immutable)
		}
		return
	}
	allowed := object.Clone(was.GetSpec())
	placeAs(allowed, next.GetSpec())
	requestAs(allowed.GetContainers(), next.GetSpec().GetContainers())
	requestAs(allowed.GetInitContainers(), next.GetSpec().GetInitContainers())
	if !validation.Equal(next.GetSpec(), allowed) {
		f.Invalid(at.Child("spec"), next.GetMetadata().GetName(), validation.Immutable)
	}
}

// placeAs gives s what other says about the nodes where its pods may run.
func placeAs(s, other *corev1.PodSpec) {
	if s == nil {
		return
	}
	s.NodeSelector, s.Tolerations = other.GetNodeSelector(), other.GetTolerations()
	s.SchedulingGates = other.GetSchedulingGates()
	switch near := other.GetAffinity().GetNodeAffinity(); {
	case s.Affinity != nil:
		s.Affinity.NodeAffinity = near
		if other.GetAffinity() == nil && validation.Equal(s.Affinity, &corev1.Affinity{}) {
			s.Affinity = nil
		}
	case other.GetAffinity() != nil:
		s.Affinity = &corev1.Affinity{NodeAffinity: near}
	}
}

// requestAs gives containers the resources of others with the same names.
func requestAs(list, other []*corev1.Container) {
	if len(list) != len(other) {
		return
	}
	for i, c := range list {
		if c.GetName() == other[i].GetName() {
			c.Resources = other[i].GetResources()
		}
	}
}
