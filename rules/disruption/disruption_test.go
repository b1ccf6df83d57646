package disruption_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// spec: DISR-1
func TestSelects(t *testing.T) {
	budget := func(s *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{Spec: &policyv1.PodDisruptionBudgetSpec{Selector: s}}
	}
	web := map[string]string{"app": "web"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     bool
	}{
		"none":  {nil, false},
		"empty": {&metav1.LabelSelector{}, true},
		"its":   {&metav1.LabelSelector{MatchLabels: web}, true},
		"other": {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false},
		"bad": {&metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: "app", Operator: "?"}}},
			false},
	} {
		if got := disruption.Selects(budget(c.selector), web); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestHealthy(t *testing.T) {
	pod := func(status string) *corev1.Pod {
		return &corev1.Pod{Status: &corev1.PodStatus{Conditions: []*corev1.PodCondition{
			{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: status},
		}}}
	}
	if !disruption.Healthy(pod("True")) || disruption.Healthy(pod("False")) || disruption.Healthy(pod("Unknown")) ||
		disruption.Healthy(&corev1.Pod{}) {
		t.Error("healthy pods are those with condition Ready, and no others")
	}
}

// spec: DISR-1
func TestConditions(t *testing.T) {
	other := &metav1.Condition{Type: "Other", Status: "True"}
	s := &policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 3, DisruptionsAllowed: 1, Conditions: []*metav1.Condition{other},
	}
	check := func(step, status, reason, message string, since time.Time) {
		t.Helper()
		want := &metav1.Condition{Type: "DisruptionAllowed", Status: status, Reason: reason, Message: message,
			ObservedGeneration: s.ObservedGeneration, LastTransitionTime: value.Time(since)}
		if len(s.Conditions) != 2 || s.Conditions[0] != other || !proto.Equal(disruption.Condition(s), want) {
			t.Errorf("%s: got %v, want %v", step, s.Conditions, want)
		}
	}
	disruption.SetAllowed(s, now)
	check("at first", "True", "SufficientPods", "", now)
	before := s.Conditions
	s.ObservedGeneration = 4
	disruption.SetAllowed(s, now.Add(time.Second))
	check("still", "True", "SufficientPods", "", now)
	if before[1].ObservedGeneration != 3 {
		t.Error("a list that may be shared has changed")
	}
	disruption.Fail(s, "no scale", now.Add(2*time.Second))
	check("not counted", "False", "SyncFailed", "no scale", now.Add(2*time.Second))
	if s.DisruptionsAllowed != 0 {
		t.Errorf("%d are allowed although they could not be counted", s.DisruptionsAllowed)
	}
	disruption.SetAllowed(s, now.Add(3*time.Second))
	check("too few", "False", "InsufficientPods", "", now.Add(2*time.Second))
}
