package policy_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/policy"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"

	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

func number(n int32) *metav1.IntOrString { return &metav1.IntOrString{IntVal: n} }

func text(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: s} }

func budget(change func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		Metadata: kindtest.Meta("My_Budget", "default"),
		Spec: &policyv1.PodDisruptionBudgetSpec{
			MinAvailable: number(2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	policy.DefaultNewPodDisruptionBudget(b)
	if change != nil {
		change(b)
	}
	return b
}

// spec: DISR-1
func TestBudgets(t *testing.T) {
	type budgets = policyv1.PodDisruptionBudget
	for name, c := range map[string]struct {
		change func(*budgets)
		want   []string
	}{
		"a number":     {nil, nil},
		"a percentage": {func(b *budgets) { b.Spec.MinAvailable = text("100%") }, nil},
		"none at all":  {func(b *budgets) { b.Spec = &policyv1.PodDisruptionBudgetSpec{} }, nil},
		"the most that may be missing": {func(b *budgets) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, text("30%")
			b.Spec.UnhealthyPodEvictionPolicy = proto.String(disruption.AlwaysAllow)
		}, nil},
		"both": {func(b *budgets) { b.Spec.MaxUnavailable = number(1) }, []string{"Invalid spec"}},
		"bad values": {func(b *budgets) {
			b.Metadata.Name = "a/b"
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = number(-1), text("101%")
			b.Spec.Selector.MatchLabels[" "] = "x"
			b.Spec.UnhealthyPodEvictionPolicy = proto.String("Never")
		}, []string{"Invalid metadata.name", "Invalid spec", "Invalid spec.minAvailable", "Invalid spec.maxUnavailable",
			"Invalid spec.selector.matchLabels", "NotSupported spec.unhealthyPodEvictionPolicy"}},
		"no percentage": {func(b *budgets) { b.Spec.MinAvailable = text("5") }, []string{"Invalid spec.minAvailable"}},
		"neither":       {func(b *budgets) { b.Spec.MinAvailable.Type = 2 }, []string{"Invalid spec.minAvailable"}},
	} {
		kindtest.Judge(t, name, policy.ValidatePodDisruptionBudget(budget(c.change)), c.want...)
		old := budget(func(b *budgets) { b.Metadata.Name = budget(c.change).Metadata.Name })
		kindtest.Judge(t, name+", changed", policy.ValidatePodDisruptionBudgetUpdate(budget(c.change), old), c.want...)
	}
}

// spec: DISR-1
func TestBudgetStatus(t *testing.T) {
	condition := func(change func(*metav1.Condition)) *policyv1.PodDisruptionBudget {
		c := &metav1.Condition{Type: "DisruptionAllowed", Status: "True", Reason: "SufficientPods",
			LastTransitionTime: value.Time(time.Unix(1, 0))}
		change(c)
		return budget(func(b *policyv1.PodDisruptionBudget) {
			b.Status.Conditions = []*metav1.Condition{c}
		})
	}
	judge := func(name string, next *policyv1.PodDisruptionBudget, want ...string) {
		t.Helper()
		kindtest.Judge(t, name, policy.ValidatePodDisruptionBudgetStatusUpdate(next, budget(nil)), want...)
	}
	judge("fine", condition(func(*metav1.Condition) {}))
	judge("numbers below zero", budget(func(b *policyv1.PodDisruptionBudget) {
		b.Status = &policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: -1, CurrentHealthy: -1, DesiredHealthy: -1, ExpectedPods: -1,
		}
	}), "Invalid status.disruptionsAllowed", "Invalid status.currentHealthy", "Invalid status.desiredHealthy",
		"Invalid status.expectedPods")
	at := "status.conditions[0]."
	judge("nothing", condition(func(c *metav1.Condition) { proto.Reset(c) }), "Invalid "+at+"type",
		"Invalid "+at+"type", "NotSupported "+at+"status", "Required "+at+"lastTransitionTime", "Required "+at+"reason")
	judge("wrong", condition(func(c *metav1.Condition) {
		c.Status, c.ObservedGeneration, c.Reason, c.Message = "yes", -1, "not a reason", strings.Repeat("x", 32769)
	}), "NotSupported "+at+"status", "Invalid "+at+"observedGeneration", "Invalid "+at+"reason", "TooLong "+at+"message")
	for reason, ok := range map[string]bool{
		"a": true, "A_b:c,d1": true, "1a": false, "a:": false, "a-b": false, "_a": false, "a_": true, "ab": true,
	} {
		var want []string
		if !ok {
			want = []string{"Invalid " + at + "reason"}
		}
		judge(reason, condition(func(c *metav1.Condition) { c.Reason = reason }), want...)
	}
	judge("a long reason", condition(func(c *metav1.Condition) { c.Reason = strings.Repeat("x", 1025) }),
		"TooLong "+at+"reason")
	twice := condition(func(*metav1.Condition) {})
	twice.Status.Conditions = append(twice.Status.Conditions, twice.Status.Conditions[0])
	judge("twice", twice, "Duplicate status.conditions[1].type")
}

func TestTheTableOfBudgets(t *testing.T) {
	table := policy.PodDisruptionBudget(define.Config{}).Strategy.Table
	now := time.Unix(1000, 0)
	b := budget(func(b *policyv1.PodDisruptionBudget) {
		b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, text("25%")
		b.Status.DisruptionsAllowed = 3
		b.Metadata.CreationTimestamp = value.Time(now.Add(-time.Minute))
	})
	var names []string
	for _, c := range table.Columns() {
		names = append(names, c.Name)
	}
	if got, want := strings.Join(names, "|"), "Name|Min Available|Max Unavailable|Allowed Disruptions|Age"; got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
	got := table.Cells(b, now)
	for i, want := range []any{"My_Budget", "N/A", "25%", int64(3), "60s"} {
		if got[i] != want {
			t.Errorf("%s: got %v, want %v", names[i], got[i], want)
		}
	}
	if got := table.Cells(budget(nil), now)[1:3]; got[0] != "2" || got[1] != "N/A" {
		t.Errorf("of a number: %v", got)
	}
}
