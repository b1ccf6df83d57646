package scheduler_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler"
)

// A pod that is being made smaller holds what it had until the node says that it has less; one that asks for more
// holds that at once, unless the node says that it will never be granted. spec: INIT-3, SCHED-4
func TestResizesHoldTheLarger(t *testing.T) {
	has := func(w *world, allocated, actual string, conditions ...*corev1.PodCondition) {
		w.Helper()
		w.changePod("a", "status", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Conditions = "Running", conditions
			p.Status.ContainerStatuses = []*corev1.ContainerStatus{{
				Name: p.Spec.Containers[0].Name, State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				AllocatedResources: quantities("cpu=" + allocated),
				Resources:          &corev1.ResourceRequirements{Requests: quantities("cpu=" + actual)},
			}}
		})
	}
	pending := func(reason string) *corev1.PodCondition {
		return &corev1.PodCondition{Type: "PodResizePending", Status: "True", Reason: reason}
	}
	for name, c := range map[string]struct {
		asks   string
		report func(w *world)
		fits   bool
	}{
		"nothing":             {"3", func(w *world) { has(w, "3", "3") }, false},
		"asked for less":      {"1", func(w *world) { has(w, "3", "3") }, false},
		"less was granted":    {"1", func(w *world) { has(w, "1", "3") }, false},
		"less is in force":    {"1", func(w *world) { has(w, "3", "3"); has(w, "1", "1") }, true},
		"more is deferred":    {"4", func(w *world) { has(w, "1", "1", pending("Deferred")) }, false},
		"more is not granted": {"4", func(w *world) { has(w, "1", "1", pending("Infeasible")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, scheduler.Config{}, func(w *world) {
				w.addNode(newNode("n", "cpu=4", "memory=8Gi", "pods=10"))
				w.addPod(newPod("a", "cpu=3"))
				synctest.Wait()
				has(w, "3", "3")
				w.resize("a", "cpu="+c.asks)
				w.addPod(newPod("b", "cpu=2"))
				time.Sleep(time.Second)
				c.report(w)
				time.Sleep(time.Hour)
				b, err := w.c.Pods.Get(t.Context(), &metav1.GetRequest{Namespace: "ns", Name: "b"})
				w.must(nil, err)
				if fits := b.GetSpec().GetNodeName() != ""; fits != c.fits {
					t.Errorf("the other pod was bound: %v, want %v", fits, c.fits)
				}
			})
		})
	}
}
