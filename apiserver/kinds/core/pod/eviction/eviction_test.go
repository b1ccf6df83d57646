package eviction_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod/eviction"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pod is one that runs and is ready.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{"app": "web"}},
		Status: &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
			{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: "True"},
		}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions[1].Status = "False" }

// budget is one for pods with app=web of which three are healthy and two must be.
func budget(change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Name: "b", Namespace: "default", Generation: 2},
		Spec: &policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
		Status: &policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 2, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3,
		},
	}
	disruption.SetAllowed(b.Status, now.Add(-time.Hour))
	for _, f := range change {
		f(b)
	}
	return b
}

func none(b *policyv1.PodDisruptionBudget) {
	b.Status.CurrentHealthy, b.Status.DisruptionsAllowed = 2, 0
	disruption.SetAllowed(b.Status, now.Add(-time.Hour))
}

// spec: DISR-2
func TestJudge(t *testing.T) {
	const (
		goes    = "goes"         // no budget counts
		spared  = "spared"       // the budget is compared
		counted = "counted down" // and has one less
	)
	type (
		pods    = corev1.Pod
		budgets = policyv1.PodDisruptionBudget
	)
	always := func(b *budgets) { b.Spec.UnhealthyPodEvictionPolicy = proto.String("AlwaysAllow") }
	for _, c := range []struct {
		name    string
		pod     *pods
		budgets []*budgets
		want    string // or what the message or its cause says
	}{
		{"no budget", pod(), nil, goes},
		{"one for others", pod(), []*budgets{budget(none, func(b *budgets) {
			b.Spec.Selector.MatchLabels["app"] = "db"
		})}, goes},
		{"one for nobody", pod(), []*budgets{budget(none, func(b *budgets) { b.Spec.Selector = nil })}, goes},
		{"one for everybody", pod(), []*budgets{budget(func(b *budgets) {
			b.Spec.Selector = &metav1.LabelSelector{}
		})}, counted},
		{"one that cannot be read", pod(), []*budgets{budget(none, func(b *budgets) {
			b.Spec.Selector.MatchExpressions = []*metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}
		})}, goes},
		{"allowed", pod(), []*budgets{budget()}, counted},
		{"forbidden", pod(), []*budgets{budget(none)}, "The disruption budget b needs 2 healthy pods and has 2 currently"},
		{"two", pod(), []*budgets{budget(), budget()}, "This pod has more than one PodDisruptionBudget"},
		{"pending", pod(func(p *pods) { p.Status.Phase = "Pending" }), []*budgets{budget(none), budget()}, goes},
		{"no phase", pod(func(p *pods) { p.Status.Phase = "" }), []*budgets{budget(none)}, goes},
		{"succeeded", pod(func(p *pods) { p.Status.Phase = "Succeeded" }), []*budgets{budget(none)}, goes},
		{"failed", pod(func(p *pods) { p.Status.Phase = "Failed" }), []*budgets{budget(none)}, goes},
		{"terminating", pod(func(p *pods) {
			p.Metadata.DeletionTimestamp = value.Time(now)
		}), []*budgets{budget(none)}, goes},
		{"not ready, enough others are", pod(unready), []*budgets{budget(none)}, spared},
		{"not ready, others are missing", pod(unready), []*budgets{budget(none, func(b *budgets) {
			b.Status.CurrentHealthy = 1
		})}, "needs 2 healthy pods and has 1 currently"},
		{"not ready, none must be", pod(unready), []*budgets{budget(none, func(b *budgets) {
			b.Status.CurrentHealthy, b.Status.DesiredHealthy = 0, 0
		})}, "needs 0 healthy pods and has 0 currently"},
		{"not ready, always allowed", pod(unready), []*budgets{budget(none, always, func(b *budgets) {
			b.Status.CurrentHealthy = 0
		})}, spared},
		{"ready, always allowed", pod(), []*budgets{budget(none, always)}, "needs 2 healthy pods"},
		{"an older generation", pod(), []*budgets{budget(func(b *budgets) { b.Metadata.Generation++ })},
			"The disruption budget b is still being processed by the server."},
		{"not counted", pod(), []*budgets{budget(func(b *budgets) { disruption.Fail(b.Status, "no scale", now) })},
			"does not allow evicting pods currently because it failed sync: no scale"},
		{"more healthy than must be", pod(), []*budgets{budget(none, func(b *budgets) { b.Status.CurrentHealthy = 3 })},
			"The disruption budget b does not allow evicting pods currently"},
		{"more, with a message", pod(), []*budgets{budget(none, func(b *budgets) {
			b.Status.CurrentHealthy = 3
			b.Status.Conditions[0].Message = "because"
		})}, "does not allow evicting pods currently (InsufficientPods): because"},
		{"too many on their way", pod(), []*budgets{budget(func(b *budgets) {
			b.Status.DisruptedPods = make(map[string]*metav1.Time)
			for i := range 2001 {
				b.Status.DisruptedPods[fmt.Sprint(i)] = value.Time(now)
			}
		})}, "DisruptedPods map too big"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := eviction.Judge(c.pod, c.budgets, now)
			got := goes
			switch {
			case err != nil:
				got = err.Error() + " " + fmt.Sprint(apierrors.From(err).Status().GetDetails().GetCauses())
			case v.Next != nil:
				got = counted
			case v.Budget != nil:
				got = spared
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Clients see by the status why, and when to come back. spec: DISR-2
func TestRefusals(t *testing.T) {
	refusal := func(b ...*policyv1.PodDisruptionBudget) *metav1.Status {
		_, err := eviction.Judge(pod(), b, now)
		return apierrors.From(err).Status()
	}
	check := func(name string, got *metav1.Status, code, retry int32, cause string) {
		t.Helper()
		causes := got.GetDetails().GetCauses()
		if got.GetCode() != code || got.GetDetails().GetRetryAfterSeconds() != retry {
			t.Errorf("%s: code %d, retry after %d, want %d, %d", name, got.GetCode(),
				got.GetDetails().GetRetryAfterSeconds(), code, retry)
		}
		if cause == "" && len(causes) != 0 || cause != "" && (len(causes) != 1 || causes[0].GetReason() != cause) {
			t.Errorf("%s: causes %v, want %q", name, causes, cause)
		}
	}
	check("forbidden", refusal(budget(none)), 429, 0, "DisruptionBudget")
	check("lagging", refusal(budget(func(b *policyv1.PodDisruptionBudget) { b.Metadata.Generation++ })), 429, 10,
		"DisruptionBudget")
	check("two", refusal(budget(), budget(none)), 500, 0, "")
}

// spec: DISR-1, DISR-2
func TestCountedDown(t *testing.T) {
	b := budget(func(b *policyv1.PodDisruptionBudget) {
		b.Status.DisruptionsAllowed = 2
		b.Status.DisruptedPods = map[string]*metav1.Time{"web-0": value.Time(now)}
	})
	before := proto.Clone(b)
	v, err := eviction.Judge(pod(), []*policyv1.PodDisruptionBudget{b}, now)
	if err != nil {
		t.Fatal(err)
	}
	if s := v.Next.GetStatus(); s.DisruptionsAllowed != 1 || len(s.DisruptedPods) != 2 || s.CurrentHealthy != 3 ||
		!value.GoTime(s.DisruptedPods["web-1"]).Equal(now) || disruption.Condition(s).GetStatus() != "True" {
		t.Errorf("one less: %v", s)
	}
	v, err = eviction.Judge(pod(func(p *corev1.Pod) { p.Metadata.Name = "web-2" }),
		[]*policyv1.PodDisruptionBudget{v.Next}, now)
	if err != nil {
		t.Fatal(err)
	}
	c := disruption.Condition(v.Next.GetStatus())
	if v.Next.Status.DisruptionsAllowed != 0 || c.GetStatus() != "False" || c.GetReason() != "InsufficientPods" ||
		c.GetObservedGeneration() != 2 || !value.GoTime(c.GetLastTransitionTime()).Equal(now) {
		t.Errorf("the last: %v", v.Next.Status)
	}
	if !proto.Equal(b, before) {
		t.Errorf("the budget that was judged has changed: %v", b)
	}
}
