package oracle

import (
	"math/rand/v2"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	om "monoplane.dev/api/meta/v1"
	op "monoplane.dev/api/policy/v1"
	ourpolicy "monoplane.dev/apiserver/kinds/policy"
	"monoplane.dev/rules/portion"
)

func disruptionBudget(r *rand.Rand) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default", ResourceVersion: "1"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}},
		}},
		Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3,
			Conditions: []metav1.Condition{{Type: "DisruptionAllowed", Status: "True", Reason: "SufficientPods",
				LastTransitionTime: metav1.Time{Time: time.Unix(1, 0)}}},
		},
	}
	if r.IntN(2) == 0 {
		b.Spec.MinAvailable = portions(r)
	}
	if r.IntN(3) == 0 {
		b.Spec.MaxUnavailable = portions(r)
	}
	if r.IntN(3) == 0 {
		b.Spec.UnhealthyPodEvictionPolicy = ptr(pick(r, []policyv1.UnhealthyPodEvictionPolicyType{
			policyv1.AlwaysAllow, policyv1.IfHealthyBudget, "", "Never",
		}))
	}
	return b
}

func portions(r *rand.Rand) *intstr.IntOrString {
	return ptr(pick(r, []intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(3), intstr.FromInt32(-1), intstr.FromString("50%"), intstr.FromString("0%"),
		intstr.FromString("100%"), intstr.FromString("101%"), intstr.FromString("-5%"), intstr.FromString("5"),
		intstr.FromString("x%"), intstr.FromString(""), intstr.FromString("99999999999999999999%"), {Type: 2},
	}))
}

// spec: DISR-1
func TestBudgetsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		k := disruptionBudget(r)
		what := append(alter(r, &k.Spec, r.IntN(3), nil), alter(r, &k.ObjectMeta, r.IntN(2), nil)...)
		what = append(what, alter(r, &k.Status, r.IntN(3), nil)...)
		old := disruptionBudget(rand.New(rand.NewPCG(1, 2)))
		theirs := ask[verdict](t, "poddisruptionbudgets", bytesOf(t, k), bytesOf(t, old))
		o, err := ours(k, &op.PodDisruptionBudget{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := ours(old, &op.PodDisruptionBudget{})
		if err != nil {
			t.Fatal(err)
		}
		ourpolicy.DefaultPodDisruptionBudget(o)
		created := compare(theirs.Created,
			ourFaults(ourpolicy.ValidatePodDisruptionBudget(o)))
		updated := compare(theirs.Updated,
			ourFaults(ourpolicy.ValidatePodDisruptionBudgetUpdate(o, before)))
		status := compare(theirs.Status,
			ourFaults(ourpolicy.ValidatePodDisruptionBudgetStatusUpdate(o, before)))
		if report(t, append(what, "create"), onlyMeta(created)) || report(t, append(what, "update"), onlyMeta(updated)) ||
			report(t, append(what, "status"), onlyMeta(status)) {
			bad++
		}
	}
}

// spec: DISR-1
func TestPortionsAreRoundedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := portions(r)
		if r.IntN(2) == 0 {
			k = ptr(intstr.FromString(pick(r, []string{"", "-"}) + string(rune('0'+r.IntN(10))) +
				string(rune('0'+r.IntN(10))) + pick(r, []string{"%", "%", "%", ""})))
		}
		o, err := ours(k, &om.IntOrString{})
		if err != nil {
			t.Fatal(err)
		}
		total := r.IntN(1000)
		for _, up := range []bool{false, true} {
			want, theirErr := intstr.GetScaledValueFromIntOrPercent(k, total, up)
			round := portion.Down
			if up {
				round = portion.Up
			}
			got, err := round(o, total)
			negative := k.Type == intstr.String && len(k.StrVal) > 0 && k.StrVal[0] == '-' // never passes validation
			tooLarge := len(k.StrVal) > 18
			if negative || tooLarge || k.Type > intstr.String {
				continue
			}
			if got != want || (err == nil) != (theirErr == nil) {
				t.Errorf("%v of %d, up %v: Kubernetes %d (%v), Monoplane %d (%v)", k, total, up, want, theirErr, got, err)
			}
		}
	}
}
