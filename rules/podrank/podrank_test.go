package podrank_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/podrank"
)

// Pods go in this order, however they stand before.
func TestOrder(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	pod := func(name, node, phase string, ready bool, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: name, Uid: name, CreationTimestamp: &metav1.Time{Seconds: 900_000}},
			Spec:     &corev1.PodSpec{NodeName: node}, Status: &corev1.PodStatus{Phase: phase},
		}
		if ready {
			p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True",
				LastTransitionTime: &metav1.Time{Seconds: 900_000}}}
		}
		for _, f := range change {
			f(p)
		}
		return p
	}
	cost := func(n string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{podrank.DeletionCost: n} }
	}
	readyAt := func(s int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime.Seconds = s }
	}
	want := []*corev1.Pod{
		pod("not bound", "", "Pending", false),
		pod("pending", "a", "Pending", false),
		pod("not ready, restarted", "a", "Running", false, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []*corev1.ContainerStatus{{RestartCount: 4}}
		}),
		pod("not ready, young", "a", "Running", false, func(p *corev1.Pod) {
			p.Metadata.CreationTimestamp.Seconds = 999_999
		}),
		pod("not ready", "a", "Running", false),
		pod("cheap", "a", "Running", true, cost("-10")),
		pod("on a full node, ready just now", "a", "Running", true, readyAt(999_990)),
		pod("on a full node", "a", "Running", true),
		pod("alone on its node", "b", "Running", true),
		pod("dear", "b", "Running", true, cost("10")),
	}
	for seed := range uint64(20) {
		got := append([]*corev1.Pod(nil), want...)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		podrank.Sort(got, want, now)
		var names, wanted []string
		for i := range got {
			names = append(names, got[i].Metadata.Name)
			wanted = append(wanted, want[i].Metadata.Name)
		}
		if strings.Join(names, "\n") != strings.Join(wanted, "\n") {
			t.Fatalf("seed %d:\n%s\nwant:\n%s", seed, strings.Join(names, "\n"), strings.Join(wanted, "\n"))
		}
	}
}

// Of the pods of a Job the one goes that has worked for the least time, whatever else is said of it.
func TestOrderOfWork(t *testing.T) {
	pod := func(created, ready int64, cost string) *corev1.Pod {
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{CreationTimestamp: &metav1.Time{Seconds: created},
				Annotations: map[string]string{podrank.DeletionCost: cost}},
			Spec: &corev1.PodSpec{NodeName: "a"}, Status: &corev1.PodStatus{Phase: "Running"},
		}
		if ready > 0 {
			p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True",
				LastTransitionTime: &metav1.Time{Seconds: ready}}}
		}
		return p
	}
	order := []*corev1.Pod{pod(10, 0, "9"), pod(9, 0, "0"), pod(7, 31, "5"), pod(8, 30, "4"), pod(7, 30, "3")}
	for i, a := range order {
		for j, b := range order {
			if c := podrank.CompareWork(a, b); c < 0 != (i < j) || c > 0 != (i > j) {
				t.Errorf("pods %d and %d compare as %d", i, j, c)
			}
		}
	}
}
