package job_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// fail has the pods of an index, of all for none, that run fail with an exit code; disrupted ones for no fault of
// theirs.
func (w *world) fail(index string, code int32, disrupted bool) {
	w.Helper()
	time.Sleep(20 * time.Minute) // longer than any pause: the pods are there
	for _, p := range w.pods() {
		if phase.Terminal(p) || index != "" && indexOf(p) != index {
			continue
		}
		p = object.Clone(p)
		p.Status.Phase = phase.Failed
		p.Status.ContainerStatuses = []*corev1.ContainerStatus{{Name: "main", State: &corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: &metav1.Time{Seconds: time.Now().Unix()}},
		}}}
		if disrupted {
			p.Status.Conditions = append(p.Status.Conditions, &corev1.PodCondition{Type: "DisruptionTarget", Status: "True"})
		}
		api := w.server.Agent(p.GetSpec().GetNodeName())
		_, err := api.Pods.UpdateStatus(context.Background(), &corev1rpc.UpdatePodRequest{Object: p})
		if !apierrors.Is(err, apierrors.NotFound) {
			w.must(err)
		}
	}
	time.Sleep(5 * time.Second)
}

// What a pod failure policy does with pods that fail in one way or another.
func TestAPodFailurePolicy(t *testing.T) {
	policy := &batchv1.PodFailurePolicy{Rules: []*batchv1.PodFailurePolicyRule{
		{Action: jobs.Ignore, OnPodConditions: []*batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: "DisruptionTarget", Status: "True"}}},
		{Action: jobs.FailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: jobs.In, Values: []int32{42}}},
		{Action: jobs.Count, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: jobs.In, Values: []int32{1}}},
	}}
	perIndex := object.Clone(&batchv1.Job{Spec: &batchv1.JobSpec{PodFailurePolicy: policy}}).Spec.PodFailurePolicy
	perIndex.Rules = append(perIndex.Rules, &batchv1.PodFailurePolicyRule{
		Action: jobs.FailIndex, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: proto.String("main"), Operator: jobs.NotIn, Values: []int32{1, 42}},
	})
	set := func(s *batchv1.JobSpec) {
		s.Parallelism, s.BackoffLimit, s.PodFailurePolicy = proto.Int32(1), proto.Int32(1), policy
	}
	t.Run("what is ignored does not count, what counts does", func(t *testing.T) {
		inWorld(t, &controllertest.Nodes{}, func(w *world) {
			w.create(set)
			for range 4 {
				w.fail("", 42, true)
				w.want(w.get(), "0 active, 0 succeeded, 0 failed")
			}
			w.fail("", 1, false)
			w.want(w.get(), "0 active, 0 succeeded, 1 failed")
			w.fail("", 7, false)
			w.want(w.ends(), "0 active, 0 succeeded, 2 failed, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded")
			w.untracked()
		})
	})
	t.Run("an exit code fails the Job at once", func(t *testing.T) {
		inWorld(t, &controllertest.Nodes{}, func(w *world) {
			w.create(func(s *batchv1.JobSpec) {
				set(s)
				indexed(s, 3, 3)
				s.BackoffLimit = proto.Int32(100)
			})
			w.fail("1", 42, false)
			w.want(w.ends(), "0 active, 0 succeeded, 3 failed, FailureTarget PodFailurePolicy, Failed PodFailurePolicy")
			w.untracked()
			if got := w.events(); got != "PodFailurePolicy SuccessfulCreate SuccessfulDelete" {
				t.Errorf("events %s", got)
			}
		})
	})
	t.Run("an exit code fails an index at once", func(t *testing.T) {
		inWorld(t, &controllertest.Nodes{}, func(w *world) {
			w.create(func(s *batchv1.JobSpec) {
				set(s)
				indexed(s, 2, 2)
				s.BackoffLimit, s.BackoffLimitPerIndex, s.PodFailurePolicy = proto.Int32(100), proto.Int32(1), perIndex
			})
			w.fail("0", 7, false)
			w.want(w.get(), "1 active, 0 succeeded, 1 failed, lost 0")
			for range 3 {
				w.fail("1", 7, true)
			}
			w.want(w.get(), "0 active, 0 succeeded, 1 failed, lost 0")
			w.fail("1", 1, false)
			w.want(w.get(), "0 active, 0 succeeded, 1 failed, lost 0")
			w.fail("1", 1, false)
			w.want(w.ends(), "0 active, 0 succeeded, 3 failed, lost 0,1, FailureTarget FailedIndexes, Failed FailedIndexes")
			w.untracked()
		})
	})
}
