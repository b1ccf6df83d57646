package taints_test

import (
	"math"
	"slices"
	"testing"
	"time"

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

// spec: NODE-3
func TestStay(t *testing.T) {
	taint := func(key, effect string) *corev1.Taint { return &corev1.Taint{Key: key, Effect: effect} }
	during := func(key string, seconds ...int64) *corev1.Toleration {
		l := &corev1.Toleration{Key: key, Operator: "Exists", Effect: taints.NoExecute}
		if len(seconds) > 0 {
			l.TolerationSeconds = &seconds[0]
		}
		return l
	}
	a, b := taint("a", taints.NoExecute), taint("b", taints.NoExecute)
	for _, c := range []struct {
		name        string
		taints      []*corev1.Taint
		tolerations []*corev1.Toleration
		d           time.Duration
		forever     bool
	}{
		{"no taint", nil, nil, 0, true},
		{"a taint that ends nothing", []*corev1.Taint{taint("a", taints.NoSchedule)}, nil, 0, true},
		{"not tolerated", []*corev1.Taint{a}, nil, 0, false},
		{"for ever", []*corev1.Taint{a}, []*corev1.Toleration{during("a")}, 0, true},
		{"for a while", []*corev1.Taint{a}, []*corev1.Toleration{during("a", 30)}, 30 * time.Second, false},
		{"for less than no time", []*corev1.Taint{a}, []*corev1.Toleration{during("a", -30)}, 0, false},
		{"the first toleration counts", []*corev1.Taint{a}, []*corev1.Toleration{during("a", 30), during("a")},
			30 * time.Second, false},
		{"the shortest time counts", []*corev1.Taint{a, b}, []*corev1.Toleration{during("a", 30), during("b", 5)},
			5 * time.Second, false},
		{"one for ever, one for a while", []*corev1.Taint{a, b}, []*corev1.Toleration{during("a"), during("b", 5)},
			5 * time.Second, false},
		{"one is not tolerated", []*corev1.Taint{a, b}, []*corev1.Toleration{during("a")}, 0, false},
		{"for longer than can be counted", []*corev1.Taint{a}, []*corev1.Toleration{during("a", math.MaxInt64)},
			math.MaxInt64 / time.Second * time.Second, false},
	} {
		if d, forever := taints.Stay(c.taints, c.tolerations); d != c.d || forever != c.forever {
			t.Errorf("%s: %v, for ever %t; want %v, %t", c.name, d, forever, c.d, c.forever)
		}
	}
}

// spec: NODE-5
func TestOfState(t *testing.T) {
	n := &corev1.Node{Spec: &corev1.NodeSpec{Unschedulable: true}, Status: &corev1.NodeStatus{}}
	for kind, status := range map[string]string{"Ready": "Unknown", "MemoryPressure": "Unknown", "DiskPressure": "True",
		"PIDPressure": "False", "Other": "True"} {
		n.Status.Conditions = append(n.Status.Conditions, &corev1.NodeCondition{Type: kind, Status: status})
	}
	got := taints.OfState(n)
	slices.Sort(got)
	if want := []string{taints.DiskPressure, taints.Unreachable, taints.Unschedulable}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, key := range append(got, taints.NotReady) {
		if !taints.ByState(key, taints.NoSchedule) || taints.ByState(key, taints.NoExecute) {
			t.Errorf("%s goes by the state of the node: with NoSchedule %t, with NoExecute %t", key,
				taints.ByState(key, taints.NoSchedule), taints.ByState(key, taints.NoExecute))
		}
	}
	if taints.ByState(taints.OutOfService, taints.NoSchedule) || taints.OfState(&corev1.Node{}) != nil {
		t.Error("taints that people give go by the state of the node, or a node of which nothing is known has some")
	}
}
