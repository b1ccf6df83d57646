package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batch1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ob "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	ourbatch "monoplane.dev/apiserver/kinds/batch"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/indexes"
)

func exitCodes(r *rand.Rand) *batch1.PodFailurePolicyOnExitCodesRequirement {
	req := &batch1.PodFailurePolicyOnExitCodesRequirement{
		Operator: pick(r, []batch1.PodFailurePolicyOnExitCodesOperator{"In", "NotIn", ""}),
	}
	for range r.IntN(4) {
		req.Values = append(req.Values, int32(r.IntN(5)))
	}
	if r.IntN(2) == 0 {
		req.ContainerName = ptr(pick(r, []string{"main", "side", "none"}))
	}
	return req
}

func failurePolicy(r *rand.Rand) *batch1.PodFailurePolicy {
	if r.IntN(3) == 0 {
		return nil
	}
	p := &batch1.PodFailurePolicy{}
	for range r.IntN(4) {
		rule := batch1.PodFailurePolicyRule{
			Action: pick(r, []batch1.PodFailurePolicyAction{"FailJob", "FailIndex", "Ignore", "Count", ""}),
		}
		if r.IntN(2) == 0 {
			rule.OnExitCodes = exitCodes(r)
		}
		for range r.IntN(2) {
			rule.OnPodConditions = append(rule.OnPodConditions, batch1.PodFailurePolicyOnPodConditionsPattern{
				Type:   pick(r, []v1.PodConditionType{"DisruptionTarget", "Ready", " "}),
				Status: pick(r, []v1.ConditionStatus{"", "True", "False", "Huh"}),
			})
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

func jobSpec(r *rand.Rand) batch1.JobSpec {
	s := batch1.JobSpec{
		Parallelism: someCount(r), Completions: someCount(r), BackoffLimit: someCount(r),
		TTLSecondsAfterFinished: someCount(r), PodFailurePolicy: failurePolicy(r),
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
			RestartPolicy: pick(r, []v1.RestartPolicy{"Never", "Never", "OnFailure", ""}),
			Containers:    []v1.Container{{Name: "main", Image: "x"}, {Name: "side", Image: "x"}},
		}},
	}
	if r.IntN(2) == 0 {
		s.CompletionMode = ptr(pick(r, []batch1.CompletionMode{"Indexed", "Indexed", "NonIndexed", "Other"}))
	}
	if r.IntN(3) == 0 {
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = someCount(r), someCount(r)
	}
	if s.Completions != nil && r.IntN(3) == 0 { // without completions Kubernetes' validation panics
		s.SuccessPolicy = &batch1.SuccessPolicy{}
		for range r.IntN(3) {
			rule := batch1.SuccessPolicyRule{SucceededCount: someCount(r)}
			if r.IntN(2) == 0 {
				rule.SucceededIndexes = ptr(pick(r, []string{"", "0", "1,3-5,7", "2,1", "x", "0-", "3-3", "1-2-3", "99"}))
			}
			s.SuccessPolicy.Rules = append(s.SuccessPolicy.Rules, rule)
		}
	}
	if r.IntN(4) == 0 {
		s.PodReplacementPolicy = ptr(pick(r, []batch1.PodReplacementPolicy{"Failed", "TerminatingOrFailed", "Other"}))
		s.ManagedBy = ptr(pick(r, []string{"a.b/c", "me", "kubernetes.io/job-controller"}))
	}
	if r.IntN(6) == 0 {
		s.Template.Labels = map[string]string{pick(r, []string{"a", "job-name", batch1.ControllerUidLabel}): "b"}
	}
	if r.IntN(6) == 0 {
		s.ManualSelector, s.Selector = ptr(true), selector(r)
	}
	return s
}

func TestJobsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		m := meta("w")
		m.UID = "u"
		k := &batch1.Job{ObjectMeta: m, Spec: jobSpec(r)}
		o := converted(t, k, &ob.Job{})
		ourbatch.DefaultNewJob(o)
		if report(t, []string{fmt.Sprint(k.Spec)}, compare(ask[faults](t, "new-jobs", k),
			ourFaults(ourbatch.ValidateJob(o)))) {
			bad++
		}
	}
}

// failedPod is what a failure policy makes of a pod, and when it has ended.
type failedPod struct {
	plan.Verdict
	Ended time.Time
}

func TestFailedPodsOfJobsAreJudgedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		policy := failurePolicy(r)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", CreationTimestamp: metav1.Unix(7, 0)}}
		for _, name := range []string{"main", "side"} {
			s := v1.ContainerStatus{Name: name}
			if r.IntN(3) > 0 {
				s.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(r.IntN(4))}
				if r.IntN(3) > 0 {
					s.State.Terminated.FinishedAt = metav1.Unix(int64(100+r.IntN(50)), 0)
				}
			}
			if r.IntN(4) == 0 {
				p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
			} else {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
			}
			c := v1.Container{Name: name}
			if r.IntN(2) == 0 {
				c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		for _, kind := range []v1.PodConditionType{"Ready", "DisruptionTarget"} {
			if r.IntN(2) == 0 {
				p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind,
					Status: pick(r, []v1.ConditionStatus{"True", "False"}), LastTransitionTime: metav1.Unix(50, 0)})
			}
		}
		if r.IntN(2) == 0 {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr(metav1.Unix(90, 0)), ptr(int64(30))
		}
		theirs := ask[failedPod](t, "failed-pods-of-jobs", policy, p)
		want := theirs.Verdict
		o := converted(t, p, &corev1.Pod{})
		var ours *ob.PodFailurePolicy
		if policy != nil {
			ours = converted(t, &batch1.Job{Spec: batch1.JobSpec{PodFailurePolicy: policy}}, &ob.Job{}).
				GetSpec().GetPodFailurePolicy()
		}
		if got := plan.Judge(ours, o); got != want {
			t.Fatalf("%v of %v is %+v; want %+v", policy, p.Status, got, want)
		}
		if got, want := plan.Ended(o), theirs.Ended; !got.Equal(want) {
			t.Fatalf("%v ended at %v; want %v", p.Status, got, want)
		}
	}
}

// readIndexes are the rows of indexes in a text, and whether they fulfil a policy.
type readIndexes struct {
	Intervals indexes.Set
	Met       bool
	Message   string
}

// The indexes of a status are read alike, and fulfil a success policy alike.
func TestIndexesCountAlike(t *testing.T) {
	r := random(t)
	text := func() string {
		var list []int32
		for range r.IntN(12) {
			list = append(list, r.Int32N(20))
		}
		return indexes.Of(list).String()
	}
	met := 0
	for range *count {
		done, n := text(), 1+r.Int32N(20)
		if r.IntN(8) == 0 {
			done += pick(r, []string{",x", ",", ",21-y,22", ",30-40"})
		}
		policy := &batch1.SuccessPolicy{}
		for range 1 + r.IntN(3) {
			rule := batch1.SuccessPolicyRule{}
			if r.IntN(3) > 0 {
				rule.SucceededIndexes = ptr(text())
			}
			if rule.SucceededIndexes == nil || r.IntN(2) == 0 {
				rule.SucceededCount = ptr(1 + r.Int32N(10))
			}
			policy.Rules = append(policy.Rules, rule)
		}
		theirs, ours := ask[readIndexes](t, "indexes-of-jobs", done, n, policy), indexes.Read(done, n)
		if !slices.Equal(theirs.Intervals, ours) {
			t.Fatalf("%q of %d is %v; Kubernetes says %v", done, n, ours, theirs.Intervals)
		}
		message, want := theirs.Message, theirs.Met
		o := converted(t, &batch1.Job{Spec: batch1.JobSpec{SuccessPolicy: policy}}, &ob.Job{}).GetSpec().GetSuccessPolicy()
		rule, got := plan.Met(o, n, ours)
		if got != want || got && fmt.Sprintf("Matched rules at index %d", rule) != message {
			t.Fatalf("%q of %d meets %v: %t, rule %d; Kubernetes says %t, %q", done, n, policy, got, rule, want, message)
		}
		if got {
			met++
		}
	}
	if met == 0 {
		t.Error("no policy was met")
	}
}

// jobStatus is one that a controller might write, or that none should.
func jobStatus(r *rand.Rand) batch1.JobStatus {
	when := func() *metav1.Time {
		return pick(r, []*metav1.Time{nil, ptr(metav1.Unix(100, 0)), ptr(metav1.Unix(200, 0))})
	}
	s := batch1.JobStatus{
		StartTime: when(), CompletionTime: when(), Active: int32(r.IntN(4) - 1), Succeeded: int32(r.IntN(4) - 1),
		Failed: int32(r.IntN(4) - 1), Ready: someCount(r), Terminating: someCount(r),
		CompletedIndexes: pick(r, []string{"", "", "0", "0-2", "1,2", "2,1", "x", "9"}),
	}
	if r.IntN(3) == 0 {
		s.FailedIndexes = ptr(pick(r, []string{"", "0", "2-3", "3,4", "4,3", "9"}))
	}
	if r.IntN(3) == 0 {
		uids := func() (list []types.UID) {
			for range r.IntN(3) {
				list = append(list, pick(r, []types.UID{"a", "b", ""}))
			}
			return list
		}
		s.UncountedTerminatedPods = &batch1.UncountedTerminatedPods{Succeeded: uids(), Failed: uids()}
	}
	for _, kind := range []batch1.JobConditionType{
		"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended",
	} {
		if r.IntN(5) == 0 {
			s.Conditions = append(s.Conditions, batch1.JobCondition{Type: kind,
				Status: pick(r, []v1.ConditionStatus{"True", "True", "False", "Unknown"})})
		}
	}
	return s
}

// Changes of what a Job is to do, and of how it is said to be, are allowed alike.
func TestChangesOfJobsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		m := meta("w")
		m.UID, m.ResourceVersion = "u", "1"
		k := &batch1.Job{ObjectMeta: m, Spec: jobSpec(r), Status: jobStatus(r)}
		if k.Spec.Selector == nil {
			k.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "w"}}
		}
		old := k.DeepCopy()
		other := jobSpec(r)
		for _, change := range []func(){
			func() { old.Spec.Parallelism, old.Spec.Completions = other.Parallelism, k.Spec.Completions },
			func() { old.Spec.Completions = other.Completions },
			func() { old.Spec.CompletionMode = other.CompletionMode },
			func() { old.Spec.PodFailurePolicy = other.PodFailurePolicy },
			func() { old.Spec.BackoffLimitPerIndex = other.BackoffLimitPerIndex },
			func() { old.Spec.Suspend = ptr(r.IntN(2) == 0) },
			func() { old.Spec.ManagedBy = other.ManagedBy },
			func() { old.Spec.Template.Labels = other.Template.Labels },
			func() { old.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"} },
			func() { old.Spec.Template.Spec.Containers[0].Resources.Requests = amounts("cpu", "1") },
			func() { old.Spec.Template.Spec.Containers[0].Image = "y" },
		} {
			if r.IntN(8) == 0 {
				change()
			}
		}
		if old.Spec.Completions == nil {
			k.Spec.SuccessPolicy, old.Spec.SuccessPolicy = nil, nil
		}
		o, before := converted(t, k, &ob.Job{}), converted(t, old, &ob.Job{})
		ourbatch.DefaultJob(o)
		ourbatch.DefaultJob(before)
		keep(o.Metadata, before.Metadata)
		what := []string{fmt.Sprint(k.Spec), fmt.Sprint(old.Spec)}
		if report(t, append(what, "update"), compare(ask[faults](t, "jobs", k, old),
			ourFaults(ourbatch.ValidateJobUpdate(o, before)))) {
			bad++
		}
		old = k.DeepCopy()
		if old.Status = jobStatus(r); r.IntN(2) == 0 {
			old.Status = *k.Status.DeepCopy()
			old.Status.Conditions, old.Status.StartTime = nil, jobStatus(r).StartTime
		}
		before = converted(t, old, &ob.Job{})
		ourbatch.DefaultJob(before)
		keep(o.Metadata, before.Metadata)
		diff := onlyMeta(compare(ask[faults](t, "job-statuses", k, old),
			ourFaults(ourbatch.ValidateJobStatus(o, before))))
		_, done := indexes.Parse(o.GetStatus().GetCompletedIndexes(), o.GetSpec().GetCompletions())
		_, lost := indexes.Parse(o.GetStatus().GetFailedIndexes(), o.GetSpec().GetCompletions())
		if done != nil || lost != nil { // which of the indexes in a text that is wrong are also in the other one is free
			diff = slices.DeleteFunc(diff, func(d string) bool { return strings.Contains(d, " overlap at index") })
		}
		if report(t, []string{"status", fmt.Sprint(k.Spec), fmt.Sprint(k.Status), fmt.Sprint(old.Status)}, diff) {
			bad++
		}
	}
}
