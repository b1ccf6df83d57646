package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	batch1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/controller/job"
	jobstrategy "k8s.io/kubernetes/pkg/registry/batch/job"

	ob "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	ourbatch "monoplane.dev/apiserver/kinds/batch"
	"monoplane.dev/controllers/job/plan"
)

//go:linkname matchTheirs k8s.io/kubernetes/pkg/controller/job.matchPodFailurePolicy
func matchTheirs(*batch1.PodFailurePolicy, *v1.Pod) (*string, bool, *batch1.PodFailurePolicyAction)

//go:linkname endedTheirs k8s.io/kubernetes/pkg/controller/job.getFinishedTime
func endedTheirs(*v1.Pod) time.Time

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
	r, ctx := random(t), context.Background()
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		m := meta("w")
		m.UID = "u"
		k := &batch1.Job{ObjectMeta: m, Spec: jobSpec(r)}
		theirs := internal(t, k, &batch.Job{})
		jobstrategy.Strategy.PrepareForCreate(ctx, theirs)
		o := converted(t, k, &ob.Job{})
		ourbatch.DefaultNewJob(o)
		if report(t, []string{fmt.Sprint(k.Spec)}, compare(theirFaults(jobstrategy.Strategy.Validate(ctx, theirs)),
			ourFaults(ourbatch.ValidateJob(o)))) {
			bad++
		}
	}
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
		message, counts, action := matchTheirs(policy, p)
		want := plan.Verdict{Counts: counts}
		if message != nil {
			want.Message = *message
		}
		if action != nil {
			want.Action = string(*action)
		}
		o := converted(t, p, &corev1.Pod{})
		var ours *ob.PodFailurePolicy
		if policy != nil {
			ours = converted(t, &batch1.Job{Spec: batch1.JobSpec{PodFailurePolicy: policy}}, &ob.Job{}).
				GetSpec().GetPodFailurePolicy()
		}
		if got := plan.Judge(ours, o); got != want {
			t.Fatalf("%v of %v is %+v; want %+v", policy, p.Status, got, want)
		}
		if got, want := plan.Ended(o), endedTheirs(p); !got.Equal(want) {
			t.Fatalf("%v ended at %v; want %v", p.Status, got, want)
		}
	}
}
