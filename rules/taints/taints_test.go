package taints_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/taints"
)

// spec: SCHED-4
func TestTolerated(t *testing.T) {
	taint := &corev1.Taint{Key: "a", Value: "1", Effect: taints.NoSchedule}
	for _, c := range []struct {
		name string
		l    *corev1.Toleration
		want bool
	}{
		{"equal", &corev1.Toleration{Key: "a", Operator: "Equal", Value: "1"}, true},
		{"equal by default", &corev1.Toleration{Key: "a", Value: "1"}, true},
		{"another value", &corev1.Toleration{Key: "a", Value: "2"}, false},
		{"another key", &corev1.Toleration{Key: "b", Value: "1"}, false},
		{"exists", &corev1.Toleration{Key: "a", Operator: "Exists"}, true},
		{"everything", &corev1.Toleration{Operator: "Exists"}, true},
		{"the effect", &corev1.Toleration{Operator: "Exists", Effect: taints.NoSchedule}, true},
		{"another effect", &corev1.Toleration{Operator: "Exists", Effect: taints.NoExecute}, false},
		{"an unknown operator", &corev1.Toleration{Key: "a", Operator: "Gt", Value: "0"}, false},
	} {
		other := &corev1.Toleration{Key: "other", Operator: "Exists"}
		if got := taints.Tolerated([]*corev1.Toleration{other, c.l}, taint); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if taints.Tolerated(nil, taint) {
		t.Error("tolerated without tolerations")
	}
}

// spec: SCHED-4
func TestUntolerated(t *testing.T) {
	soft := &corev1.Taint{Key: "a", Effect: taints.PreferNoSchedule}
	hard, out := &corev1.Taint{Key: "b", Effect: taints.NoSchedule}, &corev1.Taint{Key: "c", Effect: taints.NoExecute}
	all := []*corev1.Taint{soft, hard, out}
	b := []*corev1.Toleration{{Key: "b", Operator: "Exists"}}
	if got := taints.Untolerated(all, nil); got != hard {
		t.Errorf("without tolerations: %v", got)
	}
	if got := taints.Untolerated(all, b); got != out {
		t.Errorf("with one toleration: %v", got)
	}
	if got := taints.Untolerated(all[:2], b); got != nil {
		t.Errorf("what is left: %v", got)
	}
}
