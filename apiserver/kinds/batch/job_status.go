package batch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ValidateJobStatus checks a change of a Job's status, so that whoever waits for a Job can rely on it whoever manages
// it: what is finished stays so, the counts do not shrink, and the conditions go with the fields. A rule about a field
// is looked at when that field changes: a change of the spec may break it until the controller has seen it.
func ValidateJobStatus(new, old *batchv1.Job) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		c := newStatusCheck(f, new, old)
		c.counts()
		c.uncounted()
		c.conditions()
		c.times()
		c.finished()
		c.indexes()
	}
	return f.Causes()
}

// statusCheck looks at the change of a Job's status from old to new.
type statusCheck struct {
	*validation.Faults
	at       *validation.Path
	spec     *batchv1.JobSpec
	new, old *batchv1.JobStatus
}

func newStatusCheck(f *validation.Faults, new, old *batchv1.Job) *statusCheck {
	c := &statusCheck{Faults: f, at: f.Root("status"), spec: new.GetSpec(), new: new.GetStatus(), old: old.GetStatus()}
	if c.spec == nil {
		c.spec = &batchv1.JobSpec{}
	}
	if c.new == nil {
		c.new = &batchv1.JobStatus{}
	}
	if c.old == nil {
		c.old = &batchv1.JobStatus{}
	}
	return c
}

// turned says whether a condition became true or ceased to be.
func (c *statusCheck) turned(condition string) bool {
	return jobs.Has(c.new, condition) != jobs.Has(c.old, condition)
}

func (c *statusCheck) counts() {
	s := c.new
	c.NotNegative(c.at.Child("active"), int64(s.GetActive()))
	c.NotNegative(c.at.Child("succeeded"), int64(s.GetSucceeded()))
	c.NotNegative(c.at.Child("failed"), int64(s.GetFailed()))
	c.NotNegative(c.at.Child("ready"), int64(s.GetReady()))
	c.NotNegative(c.at.Child("terminating"), int64(s.GetTerminating()))
	changed := !validation.Same(s.Ready, c.old.Ready) || s.Active != c.old.Active
	if changed && s.Ready != nil && *s.Ready > s.Active {
		c.InvalidValue(c.at.Child("ready"), *s.Ready, "cannot set more ready pods than active")
	}
	if s.Failed < c.old.Failed {
		c.InvalidValue(c.at.Child("failed"), s.Failed, "cannot decrease the failed counter")
	}
	// An Indexed Job that may get fewer indexes forgets those that are beyond.
	elastic := jobs.IsIndexed(c.spec) && validation.Same(c.spec.Completions, c.spec.Parallelism)
	if s.Succeeded < c.old.Succeeded && !elastic {
		c.InvalidValue(c.at.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	}
}

func (c *statusCheck) uncounted() {
	at, seen := c.at.Child("uncountedTerminatedPods"), make(map[string]bool)
	for _, list := range []struct {
		name string
		uids []string
	}{
		{"succeeded", c.new.GetUncountedTerminatedPods().GetSucceeded()},
		{"failed", c.new.GetUncountedTerminatedPods().GetFailed()},
	} {
		for i, uid := range list.uids {
			switch at := at.Child(list.name).Index(i); {
			case uid == "":
				c.Invalid(at, uid, "must not be empty")
			case seen[uid]:
				c.Duplicate(at, uid)
			}
			seen[uid] = true
		}
	}
}

func (c *statusCheck) conditions() {
	at := c.at.Child("conditions")
	wrong := func(bad bool, detail string) {
		if bad {
			c.InvalidValue(at, field.OmitValueType{}, detail)
		}
	}
	complete, failed := jobs.Has(c.new, jobs.Complete), jobs.Has(c.new, jobs.FailedCondition)
	met, target := jobs.Has(c.new, jobs.SuccessCriteriaMet), jobs.Has(c.new, jobs.FailureTarget)
	completes := c.turned(jobs.Complete)
	indexesFailed := !validation.Same(c.new.FailedIndexes, c.old.FailedIndexes)
	wrong((completes || c.turned(jobs.FailedCondition)) && complete && failed,
		"cannot set Complete=True and Failed=true conditions")
	wrong((completes || c.turned(jobs.FailureTarget)) && complete && target,
		"cannot set Complete=True and FailureTarget=true conditions")
	wrong((c.turned(jobs.FailedCondition) || indexesFailed) && failed && !target,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	wrong((completes || c.turned(jobs.SuccessCriteriaMet)) && complete && !met,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	wrong(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	wrong(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	wrong(c.spec.GetSuccessPolicy() != nil && !met && complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, kind := range []string{jobs.FailedCondition, jobs.Complete, jobs.FailureTarget} {
		wrong(jobs.Has(c.old, kind) && !jobs.Has(c.new, kind), "cannot disable the terminal "+kind+"=True condition")
	}
	was := jobs.Has(c.old, jobs.SuccessCriteriaMet)
	wrong(was && !met, "cannot disable the SuccessCriteriaMet=True condition")
	wrong(jobs.Has(c.old, jobs.Complete) && !was && met,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

func (c *statusCheck) times() {
	began, ended := c.new.GetStartTime(), c.new.GetCompletionTime()
	starts, ends := !sameTime(began, c.old.GetStartTime()), !sameTime(ended, c.old.GetCompletionTime())
	at, complete := c.at.Child("completionTime"), jobs.Has(c.new, jobs.Complete)
	if c.turned(jobs.Complete) || ends {
		switch {
		case ended != nil && !complete:
			c.InvalidValue(at, validation.ShownTime(ended),
				"cannot set completionTime when there is no Complete=True condition")
		case ended == nil && complete:
			c.Required(at, "completionTime is required for Complete jobs")
		}
	}
	if (starts || ends) && began != nil && ended != nil &&
		validation.GoTime(ended).Before(validation.GoTime(began)) {
		c.InvalidValue(at, validation.ShownTime(ended), "must be equal to or after `startTime`")
	}
	if ends && ended != nil && c.old.GetCompletionTime() != nil {
		c.InvalidValue(at, validation.ShownTime(ended), validation.Immutable)
	}
	// The controller may only learn that a Job was suspended when it has been resumed.
	resumes := jobs.Has(c.old, jobs.Suspended) && jobs.HasNot(c.new, jobs.Suspended)
	if starts && c.old.GetStartTime() != nil && !resumes && !c.spec.GetSuspend() {
		c.InvalidValue(c.at.Child("startTime"), validation.ShownTime(began),
			"field is immutable for unsuspended job once set")
	}
}

// finished checks that nothing is left of a Job that has ended.
func (c *statusCheck) finished() {
	if !jobs.Finished(c.new) {
		return
	}
	ends := !jobs.Finished(c.old)
	if n := c.new.GetActive(); n > 0 && (ends || n != c.old.GetActive()) {
		c.InvalidValue(c.at.Child("active"), n, "active>0 is invalid for finished job")
	}
	if n := c.new.GetTerminating(); n > 0 && (ends || !validation.Same(c.new.Terminating, c.old.Terminating)) {
		c.InvalidValue(c.at.Child("terminating"), n, "terminating>0 is invalid for finished job")
	}
	// Nothing has to run for a Job of no pods, so that it may end without having begun.
	none := c.spec.GetSuspend() && c.spec.Completions != nil && *c.spec.Completions == 0
	starts := !sameTime(c.new.GetStartTime(), c.old.GetStartTime())
	if c.new.GetStartTime() == nil && !none && (ends || starts) {
		c.Required(c.at.Child("startTime"), "startTime is required for finished job")
	}
	left := c.new.GetUncountedTerminatedPods()
	changed := !validation.Equal(left, c.old.GetUncountedTerminatedPods())
	if len(left.GetSucceeded())+len(left.GetFailed()) > 0 && (ends || changed) {
		c.Invalid(c.at.Child("uncountedTerminatedPods"), left.String(), "must be empty for finished job")
	}
}

func (c *statusCheck) indexes() {
	completed, failed := c.new.GetCompletedIndexes(), c.new.FailedIndexes
	completedChanged := completed != c.old.GetCompletedIndexes()
	failedChanged := !validation.Same(failed, c.old.FailedIndexes)
	if completedChanged && completed != "" && !jobs.IsIndexed(c.spec) {
		c.Invalid(c.at.Child("completedIndexes"), completed,
			"cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failedChanged && failed != nil && c.spec.BackoffLimitPerIndex == nil {
		c.Invalid(c.at.Child("failedIndexes"), *failed,
			"cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if c.spec.Completions == nil || !completedChanged && !failedChanged {
		return
	}
	n := *c.spec.Completions
	done, err := indexes.Parse(completed, n)
	if err != nil && completedChanged {
		c.Invalid(c.at.Child("completedIndexes"), completed, "error parsing completedIndexes: "+err.Error())
	}
	if failed == nil {
		return
	}
	lost, wrong := indexes.Parse(*failed, n)
	if wrong != nil && failedChanged && c.spec.BackoffLimitPerIndex != nil {
		c.Invalid(c.at.Child("failedIndexes"), *failed, "error parsing failedIndexes: "+wrong.Error())
	}
	if err != nil || wrong != nil {
		done, lost = indexes.Read(completed, n), indexes.Read(*failed, n)
	}
	if common, first := done.Common(lost); common > 0 {
		c.Invalid(c.at.Child("failedIndexes"), *failed,
			fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", first))
	}
}

// sameTime compares times as Kubernetes does, which keeps whole seconds.
func sameTime(a, b *metav1.Time) bool {
	return (a == nil) == (b == nil) && (a == nil || validation.GoTime(a).Equal(validation.GoTime(b)))
}
