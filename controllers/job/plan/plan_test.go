package plan_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// An index that has two pods, as when two controllers work at once, has either succeeded or failed, whichever was
// written first: the server takes no status that says both.
func TestAnIndexEndsInOneWay(t *testing.T) {
	pod := func(phase string) *corev1.Pod {
		return &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: phase, Uid: phase, Finalizers: []string{jobs.Tracking},
				Annotations: map[string]string{jobs.Index: "1", jobs.Failures: "0"}},
			Status: &corev1.PodStatus{Phase: phase},
		}
	}
	success, failure := pod("Succeeded"), pod("Failed")
	for _, c := range []struct {
		done, lost string
		pods       []*corev1.Pod
		want       string
	}{
		{"", "", []*corev1.Pod{success, failure}, "completed 1, failed "},
		{"1", "", []*corev1.Pod{failure}, "completed 1, failed "},
		{"", "1", []*corev1.Pod{success}, "completed , failed 1"},
		{"0", "2", []*corev1.Pod{failure}, "completed 0, failed 1,2"},
	} {
		j := &batchv1.Job{
			Metadata: &metav1.ObjectMeta{Name: "j"},
			Spec: &batchv1.JobSpec{
				CompletionMode: proto.String(jobs.Indexed), Completions: proto.Int32(4), Parallelism: proto.Int32(0),
				BackoffLimit: proto.Int32(100), BackoffLimitPerIndex: proto.Int32(0),
			},
			Status: &batchv1.JobStatus{CompletedIndexes: c.done, FailedIndexes: &c.lost},
		}
		s := plan.Begin(j, c.pods, nil, plan.Backoff{}, time.Unix(1_800_000_000, 0))
		s.Did(0, nil)
		status, release := s.Record()
		got := fmt.Sprintf("completed %s, failed %s", status.GetCompletedIndexes(), status.GetFailedIndexes())
		if got != c.want || len(release) != len(c.pods) {
			t.Errorf("completed %q, failed %q: then %s, %d pods let go; want %s", c.done, c.lost, got, len(release), c.want)
		}
	}
}

// Whichever way the clock is set, here or on the nodes, nobody waits longer than for a pause, and what has begun in
// the future does not end before it has begun.
func TestClocksThatJump(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		last time.Duration
		want time.Duration
	}{
		{0, 20 * time.Second}, {-5 * time.Second, 15 * time.Second}, {-time.Hour, 0}, {time.Hour, 20 * time.Second},
	} {
		if got := (plan.Backoff{Failures: 2, Last: now.Add(c.last)}).Left(now); got != c.want {
			t.Errorf("%s from now on pods wait %s; want %s", c.last, got, c.want)
		}
	}
	for _, c := range []struct {
		began time.Duration
		over  bool
	}{{-61 * time.Second, true}, {-59 * time.Second, false}, {time.Hour, false}} {
		start := &metav1.Time{Seconds: now.Add(c.began).Unix()}
		j := &batchv1.Job{
			Metadata: &metav1.ObjectMeta{Name: "j"},
			Spec: &batchv1.JobSpec{Completions: proto.Int32(0), Parallelism: proto.Int32(0),
				BackoffLimit: proto.Int32(6), ActiveDeadlineSeconds: proto.Int64(60)},
			Status: &batchv1.JobStatus{StartTime: start},
		}
		s := plan.Begin(j, nil, nil, plan.Backoff{}, now)
		s.Work()
		s.Did(0, nil)
		status, _ := s.Record()
		status, end := s.Count(status, nil, true)
		if failed := end.GetType() == jobs.FailedCondition; failed != c.over {
			t.Errorf("a Job that began %s from now ends with %v", c.began, end)
		}
		if done := status.GetCompletionTime(); !c.over && done.GetSeconds() < start.GetSeconds() {
			t.Errorf("it began at %v and was complete at %v", start, done)
		}
	}
}
