package batch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/batch"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func job(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "pi", Uid: "u-1"},
		Spec: &batchv1.JobSpec{Template: &corev1.PodTemplateSpec{Spec: &corev1.PodSpec{
			RestartPolicy: "Never", Containers: []*corev1.Container{{Name: "main", Image: "perl"}},
		}}},
	}
	if change != nil {
		change(j)
	}
	batch.DefaultNewJob(j)
	return j
}

func indexed(n int32, change func(*batchv1.Job)) *batchv1.Job {
	return job(func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions = proto.String(jobs.Indexed), proto.Int32(n)
		if change != nil {
			change(j)
		}
	})
}

func TestJobsGetASelectorOfTheirOwn(t *testing.T) {
	j := job(nil)
	want := map[string]string{
		"batch.kubernetes.io/controller-uid": "u-1", "controller-uid": "u-1",
		"batch.kubernetes.io/job-name": "pi", "job-name": "pi",
	}
	for _, set := range []map[string]string{j.Spec.Template.Metadata.Labels, j.Metadata.Labels} {
		if fmt.Sprint(set) != fmt.Sprint(want) {
			t.Errorf("labels %v, want %v", set, want)
		}
	}
	if got := fmt.Sprint(j.Spec.Selector.MatchLabels); got != "map[batch.kubernetes.io/controller-uid:u-1]" {
		t.Errorf("selector %s", got)
	}
	s := j.Spec
	got := fmt.Sprintln(*s.Completions, *s.Parallelism, *s.BackoffLimit, *s.CompletionMode, *s.Suspend, *s.ManualSelector,
		*s.PodReplacementPolicy)
	if got != "1 1 6 NonIndexed false false TerminatingOrFailed\n" {
		t.Errorf("defaults %s", got)
	}
	manual := job(func(j *batchv1.Job) {
		j.Spec.ManualSelector, j.Spec.Parallelism = proto.Bool(true), proto.Int32(3)
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		j.Spec.Template.Metadata = &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}
		j.Metadata.Labels = map[string]string{"own": "label"}
	})
	kindtest.Judge(t, "manual", batch.ValidateJob(manual))
	if len(manual.Spec.Template.Metadata.Labels) != 1 || len(manual.Metadata.Labels) != 1 ||
		manual.Spec.Completions != nil {
		t.Errorf("a Job with a selector of its own became %v", manual)
	}
	failing := indexed(5, func(j *batchv1.Job) {
		j.Spec.BackoffLimitPerIndex = proto.Int32(1)
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []*batchv1.PodFailurePolicyRule{{
			Action: jobs.FailIndex, OnPodConditions: []*batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "A"}},
		}}}
	})
	kindtest.Judge(t, "failing", batch.ValidateJob(failing))
	s = failing.Spec
	got = fmt.Sprintln(*s.BackoffLimit, *s.PodReplacementPolicy, s.PodFailurePolicy.Rules[0].OnPodConditions[0].Status)
	if got != "2147483647 Failed True\n" {
		t.Errorf("defaults %s", got)
	}
}

func TestJobs(t *testing.T) {
	for name, c := range map[string]struct {
		job  *batchv1.Job
		want []string
	}{
		"the least":    {job(nil), nil},
		"with indexes": {indexed(100_000, nil), nil},
		"a wrong label": {job(func(j *batchv1.Job) {
			j.Spec.Template.Metadata = &metav1.ObjectMeta{Labels: map[string]string{jobs.UIDLabel: "other"}}
		}), []string{
			"Invalid spec.template.metadata.labels[batch.kubernetes.io/controller-uid]",
			"Invalid spec.template.metadata.labels",
		}},
		"numbers": {job(func(j *batchv1.Job) {
			s := j.Spec
			for _, f := range []**int32{
				&s.Parallelism, &s.Completions, &s.BackoffLimit, &s.TtlSecondsAfterFinished, &s.BackoffLimitPerIndex,
				&s.MaxFailedIndexes,
			} {
				*f = proto.Int32(-1)
			}
			s.ActiveDeadlineSeconds = proto.Int64(-1)
			s.ManagedBy = proto.String("me")
		}), []string{
			"Invalid spec.parallelism", "Invalid spec.completions", "Invalid spec.activeDeadlineSeconds",
			"Invalid spec.backoffLimit", "Invalid spec.ttlSecondsAfterFinished", "Invalid spec.backoffLimitPerIndex",
			"Invalid spec.maxFailedIndexes", "Invalid spec.managedBy", "Invalid spec.backoffLimitPerIndex",
			"Invalid spec.maxFailedIndexes",
		}},
		"too many indexes": {indexed(100_001, func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.BackoffLimitPerIndex = proto.Int32(10_001), proto.Int32(1)
		}), []string{"Required spec.maxFailedIndexes", "Invalid spec.parallelism"}},
		"a long hostname": {indexed(11, func(j *batchv1.Job) { j.Metadata.Name = strings.Repeat("a", 61) }),
			[]string{"Invalid metadata.name"}},
		"policies": {indexed(3, func(j *batchv1.Job) {
			j.Spec.Template.Spec.RestartPolicy = "OnFailure"
			j.Spec.PodReplacementPolicy = proto.String(jobs.TerminatingOrFailed)
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []*batchv1.PodFailurePolicyRule{
				{Action: jobs.FailIndex, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					ContainerName: proto.String("x"), Operator: jobs.In, Values: []int32{2, 0, 2},
				}},
				{},
			}}
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []*batchv1.SuccessPolicyRule{
				{}, {SucceededIndexes: proto.String("0,3")},
				{SucceededIndexes: proto.String("0-1"), SucceededCount: proto.Int32(4)},
			}}
		}), []string{
			"Invalid spec.podFailurePolicy.rules[0].action",
			"Invalid spec.podFailurePolicy.rules[0].onExitCodes.containerName",
			"Invalid spec.podFailurePolicy.rules[0].onExitCodes.values[1]",
			"Duplicate spec.podFailurePolicy.rules[0].onExitCodes.values[2]",
			"Invalid spec.podFailurePolicy.rules[0].onExitCodes.values",
			"Required spec.podFailurePolicy.rules[1].action", "Invalid spec.podFailurePolicy.rules[1]",
			"Required spec.successPolicy.rules[0]", "Invalid spec.successPolicy.rules[1].succeededIndexes",
			"Invalid spec.successPolicy.rules[2].succeededCount", "Invalid spec.successPolicy.rules[2].succeededCount",
			"NotSupported spec.podReplacementPolicy", "Invalid spec.template.spec.restartPolicy",
		}},
		"for ever": {job(func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = "" }),
			[]string{"Required spec.template.spec.restartPolicy"}},
	} {
		t.Run(name, func(t *testing.T) { kindtest.Judge(t, name, batch.ValidateJob(c.job), c.want...) })
	}
}

func TestChangesOfAJob(t *testing.T) {
	suspended := func(change func(*batchv1.Job)) *batchv1.Job {
		return job(func(j *batchv1.Job) {
			j.Spec.Suspend = proto.Bool(true)
			if change != nil {
				change(j)
			}
		})
	}
	where := func(j *batchv1.Job) {
		j.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		j.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		j.Spec.Template.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Requests: kindtest.Amounts("cpu", "1")}
	}
	for name, c := range map[string]struct {
		old, new *batchv1.Job
		want     []string
	}{
		"what may change": {job(nil), job(func(j *batchv1.Job) {
			s := j.Spec
			s.Parallelism, s.BackoffLimit, s.TtlSecondsAfterFinished = proto.Int32(7), proto.Int32(2), proto.Int32(0)
			s.ActiveDeadlineSeconds, s.Suspend, s.Completions = proto.Int64(3), proto.Bool(true), proto.Int32(1)
		}), nil},
		"what may not": {job(nil), indexed(2, func(j *batchv1.Job) {
			s := j.Spec
			s.ManagedBy, s.BackoffLimitPerIndex = proto.String("a.b/c"), proto.Int32(1)
			s.PodFailurePolicy = &batchv1.PodFailurePolicy{}
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []*batchv1.SuccessPolicyRule{{SucceededCount: proto.Int32(1)}}}
			s.Template.Spec.Containers[0].Image = "other"
		}), []string{
			"Invalid spec.completions", "Invalid spec.template", "Invalid spec.completionMode",
			"Invalid spec.podFailurePolicy", "Invalid spec.backoffLimitPerIndex", "Invalid spec.managedBy",
			"Invalid spec.successPolicy",
		}},
		"more indexes": {indexed(2, func(j *batchv1.Job) { j.Spec.Parallelism = proto.Int32(2) }),
			indexed(5, func(j *batchv1.Job) { j.Spec.Parallelism = proto.Int32(5) }), nil},
		"more indexes alone":   {indexed(2, nil), indexed(5, nil), []string{"Invalid spec.completions"}},
		"where and how large":  {suspended(nil), suspended(where), nil},
		"and not any more":     {suspended(where), suspended(nil), nil},
		"where, while it runs": {job(nil), job(where), []string{"Invalid spec.template"}},
		"another image while it waits": {suspended(nil), suspended(func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Image = "x"
		}), []string{"Invalid spec.template.spec"}},
		"where, while pods still end": {func() *batchv1.Job {
			j := suspended(nil)
			j.Status.StartTime, j.Status.Active = value.Time(time.Unix(1, 0)), 1
			return j
		}(), suspended(where), []string{"Invalid spec.template"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.new.Metadata.ResourceVersion = "2"
			kindtest.Judge(t, name, batch.ValidateJobUpdate(c.new, c.old), c.want...)
		})
	}
}

func TestStatusOfAJob(t *testing.T) {
	at := func(s int64) *metav1.Time { return value.Time(time.Unix(s, 0)) }
	yes := func(types ...string) (list []*batchv1.JobCondition) {
		for _, kind := range types {
			list = append(list, &batchv1.JobCondition{Type: kind, Status: "True"})
		}
		return list
	}
	complete := &batchv1.JobStatus{
		StartTime: at(1), CompletionTime: at(2), Conditions: yes(jobs.SuccessCriteriaMet, jobs.Complete), Succeeded: 3,
	}
	with := func(s *batchv1.JobStatus, change func(*batchv1.JobStatus)) *batchv1.JobStatus {
		s = object.Clone(s)
		change(s)
		return s
	}
	for name, c := range map[string]struct {
		old, new *batchv1.JobStatus
		want     []string
	}{
		"complete": {&batchv1.JobStatus{StartTime: at(1)}, complete, nil},
		"failed": {&batchv1.JobStatus{StartTime: at(1)}, &batchv1.JobStatus{
			StartTime: at(1), Conditions: yes(jobs.FailureTarget, jobs.FailedCondition),
		}, nil},
		"failed at once": {&batchv1.JobStatus{StartTime: at(1)}, &batchv1.JobStatus{
			StartTime: at(1), Conditions: yes(jobs.FailedCondition),
		}, []string{"Invalid status.conditions"}},
		"complete with something left": {&batchv1.JobStatus{}, with(complete, func(s *batchv1.JobStatus) {
			s.StartTime, s.CompletionTime, s.Active, s.Terminating = nil, nil, 1, proto.Int32(1)
			s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: []string{"a", "", "a"}}
		}), []string{
			"Invalid status.uncountedTerminatedPods.failed[1]", "Duplicate status.uncountedTerminatedPods.failed[2]",
			"Required status.completionTime", "Invalid status.active", "Invalid status.terminating",
			"Required status.startTime", "Invalid status.uncountedTerminatedPods",
		}},
		"less than before": {with(complete, func(s *batchv1.JobStatus) { s.Failed = 2 }),
			with(complete, func(s *batchv1.JobStatus) { s.Succeeded, s.Ready = 2, proto.Int32(1) }),
			[]string{"Invalid status.ready", "Invalid status.failed", "Invalid status.succeeded"}},
		"once more": {complete, &batchv1.JobStatus{StartTime: at(5), Succeeded: 3}, []string{
			"Invalid status.conditions", "Invalid status.conditions", "Invalid status.startTime",
		}},
		"another end": {complete, with(complete, func(s *batchv1.JobStatus) { s.CompletionTime = at(0) }),
			[]string{"Invalid status.completionTime", "Invalid status.completionTime"}},
		"indexes": {&batchv1.JobStatus{}, &batchv1.JobStatus{CompletedIndexes: "1-3", FailedIndexes: proto.String("3")},
			[]string{"Invalid status.completedIndexes", "Invalid status.failedIndexes", "Invalid status.failedIndexes"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(func(j *batchv1.Job) { j.Spec.Completions = proto.Int32(9) })
			next, live := object.Clone(j), object.Clone(j)
			next.Status, live.Status = c.new, c.old
			kindtest.Judge(t, name, batch.ValidateJobStatus(next, live), c.want...)
		})
	}
}

func TestJobsAreShownAsPeopleKnowThem(t *testing.T) {
	now := time.Unix(1000, 0)
	row := func(j *batchv1.Job) string {
		return fmt.Sprint(batch.Job(define.Config{}).Strategy.Table.Cells(j, now))
	}
	j := job(nil)
	j.Metadata.CreationTimestamp = value.Time(time.Unix(940, 0))
	if got, want := row(j), "[pi Running 0/1  60s main perl batch.kubernetes.io/controller-uid=u-1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	j.Spec.Completions, j.Spec.Parallelism = nil, proto.Int32(4)
	j.Status.StartTime = value.Time(time.Unix(950, 0))
	if got, want := row(j), "[pi Running 0/1 of 4 50s 60s "; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	j.Status.CompletionTime = value.Time(time.Unix(960, 0))
	j.Status.Succeeded = 1
	for _, c := range []struct{ condition, want string }{
		{jobs.SuccessCriteriaMet, jobs.SuccessCriteriaMet}, {jobs.Suspended, jobs.Suspended}, {jobs.Complete, jobs.Complete},
	} {
		j.Status.Conditions = append(j.Status.Conditions, &batchv1.JobCondition{Type: c.condition, Status: "True"})
		if got, want := row(j), "[pi "+c.want+" 1/1 of 4 10s 60s "; !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
