package count_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/disruption/count"
	"monoplane.dev/rules/disruption"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pods makes one pod for each letter: h is healthy, u is not, d is being deleted.
func pods(states string) []*corev1.Pod {
	var out []*corev1.Pod
	for i, s := range states {
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: fmt.Sprint(i)},
			Status:   &corev1.PodStatus{Conditions: []*corev1.PodCondition{{Type: "Ready", Status: "True"}}},
		}
		switch s {
		case 'u':
			p.Status.Conditions[0].Status = "False"
		case 'd':
			p.Metadata.DeletionTimestamp = value.Time(now)
		}
		out = append(out, p)
	}
	return out
}

// spec: DISR-1
func TestOf(t *testing.T) {
	number := func(n int32) *metav1.IntOrString { return &metav1.IntOrString{IntVal: n} }
	percent := func(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: s} }
	for _, c := range []struct {
		name      string
		min, most *metav1.IntOrString
		pods      string
		scale     int32
		want      string // healthy/desired of expected, allowed
	}{
		{"nothing asked", nil, nil, "hhh", 9, "3/0 of 0, 0"},
		{"a number", number(2), nil, "hhh", 9, "3/2 of 3, 1"},
		{"the unhealthy", number(2), nil, "hhu", 9, "2/2 of 3, 0"},
		{"those that go", number(1), nil, "hhd", 9, "2/1 of 3, 1"},
		{"too few", number(5), nil, "hhh", 9, "3/5 of 3, 0"},
		{"none", number(0), nil, "", 9, "0/0 of 0, 0"},
		{"a percentage", percent("50%"), nil, "hhh", 5, "3/3 of 5, 0"},
		{"all", percent("100%"), nil, "hhhhh", 5, "5/5 of 5, 0"},
		{"no percentage", percent("0%"), nil, "hh", 5, "2/0 of 5, 2"},
		{"may be missing", nil, number(1), "hhh", 3, "3/2 of 3, 1"},
		{"more than there are", nil, number(9), "hhh", 3, "3/0 of 3, 3"},
		{"a part may be missing", nil, percent("34%"), "hhh", 3, "3/1 of 3, 2"},
		{"of none", nil, number(1), "hhh", 0, "3/0 of 0, 0"},
	} {
		b := &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Generation: 4},
			Spec:     &policyv1.PodDisruptionBudgetSpec{MinAvailable: c.min, MaxUnavailable: c.most},
		}
		r, err := count.Of(b, pods(c.pods), c.scale, now)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		s := r.Status
		got := fmt.Sprintf("%d/%d of %d, %d", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed)
		if got != c.want || s.ObservedGeneration != 4 || (disruption.Condition(s).GetStatus() == "True") !=
			(s.DisruptionsAllowed > 0) {
			t.Errorf("%s: got %s, want %s; %v", c.name, got, c.want, s)
		}
		b.Status = s
		if again, err := count.Of(b, pods(c.pods), c.scale, now.Add(time.Hour)); err != nil ||
			!count.Same(again.Status, s) {
			t.Errorf("%s: counted again it is another: %v, was %v (%v)", c.name, again.Status, s, err)
		}
	}
	b := &policyv1.PodDisruptionBudget{Spec: &policyv1.PodDisruptionBudgetSpec{MaxUnavailable: percent("x")}}
	if _, err := count.Of(b, nil, 3, now); err == nil {
		t.Error("a percentage that is none was counted")
	}
}

// spec: DISR-1
func TestMemory(t *testing.T) {
	at := func(ago time.Duration) *metav1.Time { return value.Time(now.Add(-ago)) }
	b := &policyv1.PodDisruptionBudget{
		Spec: &policyv1.PodDisruptionBudgetSpec{MinAvailable: &metav1.IntOrString{IntVal: 1}},
		Status: &policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]*metav1.Time{
			"0": at(0), "1": at(time.Minute), "2": at(2 * time.Minute), "3": at(time.Hour), "4": at(0), "gone": at(0),
		}},
	}
	r, err := count.Of(b, pods("hhhhdh"), 0, now)
	if err != nil {
		t.Fatal(err)
	}
	var kept, overdue []string
	for _, name := range []string{"0", "1", "2", "3", "4", "5", "gone"} {
		if r.Status.DisruptedPods[name] != nil {
			kept = append(kept, name)
		}
	}
	for _, p := range r.Overdue {
		overdue = append(overdue, p.Metadata.Name)
	}
	if k, o := strings.Join(kept, " "), strings.Join(overdue, " "); k != "0 1 2" || o != "3" ||
		r.Status.CurrentHealthy != 3 || !r.Again.Equal(now) {
		t.Errorf("kept %s, overdue %s, %d healthy, again at %v", k, o, r.Status.CurrentHealthy, r.Again)
	}
	if len(b.Status.DisruptedPods) != 6 {
		t.Error("the budget that was counted has changed")
	}
}
