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
