package defaultpreemption

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/scheduler/framework"
)

// victim is a pod that started at a second; never when 0.
func victim(priority int32, start int64) *framework.PodInfo {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "v"}, Spec: &corev1.PodSpec{Priority: &priority},
		Status: &corev1.PodStatus{}}
	if start > 0 {
		p.Status.StartTime = &metav1.Time{Seconds: start}
	}
	return framework.NewPodInfo(p)
}

func costs(broken int, victims ...*framework.PodInfo) *candidate {
	c := &candidate{}
	for i, v := range victims {
		c.add(v, i < broken)
	}
	return c
}

// Each criterion decides only when those before it do not.
// spec: PREEMPT-1
func TestBetter(t *testing.T) {
	const lowest, highest = -1 << 31, 1<<31 - 1
	for _, x := range []struct {
		name          string
		better, worse *candidate
	}{
		{"fewer broken budgets, at any price", costs(0, victim(100, 1), victim(100, 1)), costs(1, victim(-5, 1))},
		{"one broken is fewer than two", costs(1, victim(9, 1), victim(9, 1)), costs(2, victim(1, 1), victim(1, 1))},
		{"lower highest priority, with a larger sum", costs(0, victim(5, 1), victim(5, 1), victim(5, 1)),
			costs(0, victim(6, 1))},
		{"negative is lower", costs(0, victim(-6, 1)), costs(0, victim(-5, 1))},
		{"smaller sum", costs(0, victim(5, 1), victim(1, 1)), costs(0, victim(5, 1), victim(2, 1))},
		{"fewer of the same negative priority", costs(0, victim(-5, 1)), costs(0, victim(-5, 9), victim(-5, 9))},
		{"the others are counted before they are weighed", costs(0, victim(5, 1)),
			costs(0, victim(5, 9), victim(-2_000_000_000, 9))},
		{"sums do not overflow", costs(0, victim(highest, 1)), costs(0, victim(highest, 1), victim(highest, 1),
			victim(highest, 1))},
		{"fewer victims, the sums being equal", costs(0, victim(5, 1)), costs(0, victim(5, 9), victim(lowest, 9))},
		{"later start", costs(0, victim(5, 2)), costs(0, victim(5, 1))},
		{"of the earliest of the highest priority", costs(0, victim(5, 2), victim(5, 3), victim(1, 1)),
			costs(0, victim(5, 1), victim(5, 9), victim(1, 9))},
		{"not started is the latest", costs(0, victim(5, 0)), costs(0, victim(5, 1<<33))},
	} {
		if !x.better.better(x.worse) || x.worse.better(x.better) {
			t.Errorf("%s: no", x.name)
		}
	}
	if a, b := costs(0, victim(5, 1)), costs(0, victim(5, 1)); a.better(b) || b.better(a) {
		t.Error("one of two equals is better")
	}
}

func TestArgs(t *testing.T) {
	for _, x := range []struct {
		args  Args
		valid bool
		// of 50, 1 000 and 5 000 nodes
		candidates [3]int
	}{
		{DefaultArgs(), true, [3]int{50, 100, 500}},
		{Args{MinCandidateNodesPercentage: 100}, true, [3]int{50, 1000, 5000}},
		{Args{MinCandidateNodesPercentage: 1}, true, [3]int{0, 10, 50}},
		{Args{MinCandidateNodesAbsolute: 1}, true, [3]int{1, 1, 1}},
		{Args{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 1 << 30}, true, [3]int{50, 1000, 5000}},
		{Args{}, false, [3]int{}},
		{Args{MinCandidateNodesPercentage: 101}, false, [3]int{}},
		{Args{MinCandidateNodesPercentage: -1, MinCandidateNodesAbsolute: 1}, false, [3]int{}},
		{Args{MinCandidateNodesPercentage: 1, MinCandidateNodesAbsolute: -1}, false, [3]int{}},
	} {
		if _, err := New(x.args); (err == nil) != x.valid {
			t.Errorf("%+v: %v", x.args, err)
		}
		if !x.valid {
			continue
		}
		if got := [3]int{x.args.candidates(50), x.args.candidates(1000), x.args.candidates(5000)}; got != x.candidates {
			t.Errorf("%+v: %v candidates, want %v", x.args, got, x.candidates)
		}
	}
}
