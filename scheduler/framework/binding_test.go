package framework

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// A binding names the pod and the node as they were judged, and never another node. spec: SCHED-3
func TestNewBinding(t *testing.T) {
	pod := NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "a", Uid: "p",
		ResourceVersion: "7"}})
	node := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1", Uid: "n", ResourceVersion: "8"}}
	var state CycleState
	if b := NewBinding(&state, pod, "n1"); b.Target.Uid != "" || b.Target.ResourceVersion != "" || b.Target.Name != "n1" {
		t.Errorf("nothing was picked: %v", b)
	}
	state.Pick(node)
	b := NewBinding(&state, pod, "n1")
	if m := b.Metadata; m.Namespace != "ns" || m.Name != "a" || m.Uid != "p" || m.ResourceVersion != "7" {
		t.Errorf("pod: %v", b)
	}
	if r := b.Target; r.Kind != "Node" || r.Name != "n1" || r.Uid != "n" || r.ResourceVersion != "8" {
		t.Errorf("node: %v", b)
	}
	if b := NewBinding(&state, pod, "n2"); b.Target.Name != "n2" || b.Target.Uid != "" || b.Target.ResourceVersion != "" {
		t.Errorf("another node: %v", b)
	}
	newer := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1", Uid: "n", ResourceVersion: "9"}}
	state.Pick(newer)
	if state.Picked() != newer {
		t.Errorf("picked %v", state.Picked())
	}
}
