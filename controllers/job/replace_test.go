package job_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/phase"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// slow returns nodes on which a pod that is deleted runs on for some time.
func slow(d time.Duration) *controllertest.Nodes {
	return &controllertest.Nodes{StopsIn: func(*corev1.Pod) time.Duration { return d }}
}

// deleted begins the deletion of the pod of an index, and returns it.
func (w *world) deleted(index string) *corev1.Pod {
	w.Helper()
	pods := w.pods()
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return indexOf(p) == index })
	if i < 0 {
		w.Fatalf("no pod has index %s", index)
	}
	_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{
		Namespace: "ns", Name: pods[i].GetMetadata().GetName(),
		Options: &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(300)},
	})
	w.must(err)
	return pods[i]
}

// ofIndex returns the pods of an index, those that are being deleted first.
func (w *world) ofIndex(index string) (out []*corev1.Pod) {
	w.Helper()
	for _, p := range w.pods() {
		if indexOf(p) != index {
			continue
		}
		if p.GetMetadata().GetDeletionTimestamp() != nil {
			out = slices.Insert(out, 0, p)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// made reads how many pods were made for a reason.
func (w *world) made(reason string) float64 {
	w.Helper()
	families, err := w.metrics.Gather()
	w.must(err)
	for _, f := range families {
		if f.GetName() != "job_controller_job_pods_creation_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// A pod that is deleted has failed at once, and has a successor of its index, after the pause of a failure, while it
// may still run: that is the policy without one.
//
// spec: WORK-3, WORK-5
func TestADeletedPodIsReplacedWhileItEnds(t *testing.T) {
	inWorld(t, slow(2*time.Minute), func(w *world) {
		w.create(func(s *batchv1.JobSpec) { indexed(s, 2, 2) })
		time.Sleep(time.Second)
		was := w.deleted("1")
		time.Sleep(time.Second)
		w.want(w.get(), "1 active, 0 succeeded, 1 failed")
		if n := w.get().GetStatus().GetTerminating(); n != 1 {
			t.Errorf("%d pods are being deleted", n)
		}
		time.Sleep(12 * time.Second)
		w.want(w.get(), "2 active, 0 succeeded, 1 failed")
		pods := w.ofIndex("1")
		if len(pods) != 2 || pods[0].GetMetadata().GetUid() != was.GetMetadata().GetUid() {
			t.Fatalf("index 1 has %v", pods)
		}
		time.Sleep(3 * time.Minute)
		w.want(w.get(), "2 active, 0 succeeded, 1 failed")
		if n := w.get().GetStatus().GetTerminating(); n != 0 || len(w.ofIndex("1")) != 1 {
			t.Errorf("%d pods are being deleted, and index 1 has %v", n, w.ofIndex("1"))
		}
		if w.made("new") != 2 || w.made("recreate_terminating_or_failed") != 1 {
			t.Error("the metrics say otherwise why pods were made")
		}
	})
}

// With podReplacementPolicy Failed a pod that is deleted has no successor before it has ended: no two pods of one
// index run at the same time. It has none at all when it ended well.
//
// spec: WORK-3
func TestADeletedPodIsReplacedWhenItHasEnded(t *testing.T) {
	for end, want := range map[string]string{
		phase.Failed:    "2 active, 0 succeeded, 1 failed",
		phase.Succeeded: "1 active, 1 succeeded, 0 failed, completed 1",
	} {
		inWorld(t, slow(time.Hour), func(w *world) {
			w.create(func(s *batchv1.JobSpec) { indexed(s, 2, 2); s.PodReplacementPolicy = proto.String(jobs.Failed) })
			time.Sleep(time.Second)
			was := w.deleted("1")
			for range 100 {
				time.Sleep(time.Second)
				w.want(w.get(), "1 active, 0 succeeded, 0 failed")
				if n := w.get().GetStatus().GetTerminating(); n != 1 || len(w.ofIndex("1")) != 1 {
					t.Fatalf("%d pods are being deleted, and index 1 has %v", n, w.ofIndex("1"))
				}
			}
			w.must(w.nodes.End(w.Context(), was, end))
			time.Sleep(time.Minute)
			w.want(w.get(), want)
			made := 0
			if end == phase.Failed {
				made = 1
			}
			if n := len(w.ofIndex("1")) - 1; n != made || w.made("new") != 2 || w.made("recreate_failed") != float64(made) {
				t.Errorf("after %s index 1 has %d successors", end, n)
			}
		})
	}
}
