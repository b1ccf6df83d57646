package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	corev1 "monoplane.dev/api/core/v1"
	op "monoplane.dev/api/policy/v1"
	"monoplane.dev/codec/value"
	budget "monoplane.dev/controllers/disruption/count"
	"monoplane.dev/rules/disruption"
)

// countedBudget is a budget that passes validation, but for portions that are none, with a status in which there may
// be anything.
func countedBudget(r *rand.Rand, now time.Time) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: meta("b")}
	b.Generation = int64(1 + r.IntN(2))
	some := func() *intstr.IntOrString {
		switch r.IntN(12) {
		case 0:
			return ptr(intstr.FromString(pick(r, []string{"x%", "5", "", "%"})))
		case 1, 2, 3, 4, 5:
			return ptr(intstr.FromString(fmt.Sprint(r.IntN(101), "%")))
		default:
			return ptr(intstr.FromInt32(r.Int32N(10)))
		}
	}
	switch r.IntN(8) {
	case 0: // neither
	case 1, 2, 3:
		b.Spec.MaxUnavailable = some()
	default:
		b.Spec.MinAvailable = some()
	}
	if r.IntN(20) > 0 {
		b.Spec.Selector = pick(r, []*metav1.LabelSelector{
			{}, {MatchLabels: map[string]string{"app": "web"}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: "In", Values: []string{"web", "db"}}}},
		})
	}
	if r.IntN(10) == 0 {
		b.Spec.UnhealthyPodEvictionPolicy = ptr(policyv1.AlwaysAllow)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: int64(r.IntN(3)), DisruptionsAllowed: max(0, r.Int32N(5)-1), CurrentHealthy: r.Int32N(5),
		DesiredHealthy: r.Int32N(4), ExpectedPods: r.Int32N(4), Conditions: allowedConditions(r, now),
	}
	if r.IntN(2) == 0 {
		b.Status.DisruptedPods = map[string]metav1.Time{}
		for range r.IntN(5) {
			ago := time.Duration(pick(r, []int{0, 1, 60, 119, 120, 121, 3600})) * time.Second
			b.Status.DisruptedPods[fmt.Sprint("p", r.IntN(12))] = metav1.NewTime(now.Add(-ago))
		}
	}
	return b
}

// allowedConditions are conditions that a budget may have, DisruptionAllowed often among them.
func allowedConditions(r *rand.Rand, now time.Time) []metav1.Condition {
	var out []metav1.Condition
	for range r.IntN(4) {
		out = append(out, metav1.Condition{
			Type:               pick(r, []string{"DisruptionAllowed", "DisruptionAllowed", "Other"}),
			Status:             pick(r, []metav1.ConditionStatus{"True", "False", "Unknown"}),
			Reason:             pick(r, []string{"SufficientPods", "InsufficientPods", "SyncFailed"}),
			Message:            pick(r, []string{"", "", "why"}),
			ObservedGeneration: int64(r.IntN(3)),
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		})
	}
	return out
}

// readiness are conditions of a pod, Ready mostly among them.
func readiness(r *rand.Rand) []v1.PodCondition {
	var out []v1.PodCondition
	for range r.IntN(4) {
		out = append(out, v1.PodCondition{Type: pick(r, []v1.PodConditionType{"Ready", "Ready", "PodScheduled"}),
			Status: pick(r, []v1.ConditionStatus{"True", "True", "False", "Unknown"})})
	}
	return out
}

// budgetPods are pods of the controllers that are returned with them, or of none.
func budgetPods(r *rand.Rand, now time.Time) (pods []*v1.Pod, sets []*apps1.ReplicaSet) {
	for i := range 3 {
		s := &apps1.ReplicaSet{ObjectMeta: meta(fmt.Sprint("s", i)), Spec: apps1.ReplicaSetSpec{Replicas: ptr(r.Int32N(6))}}
		s.UID = types.UID("uid of " + s.Name)
		sets = append(sets, s)
	}
	for i := range r.IntN(12) {
		p := minimal()
		p.Name = fmt.Sprint("p", i)
		p.Labels = map[string]string{"app": pick(r, []string{"web", "web", "web", "db", "other"})}
		p.Status.Conditions = readiness(r)
		if r.IntN(6) == 0 {
			p.DeletionTimestamp = ptr(metav1.NewTime(now))
		}
		if r.IntN(8) > 0 {
			s := pick(r, sets)
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: s.Name, UID: s.UID,
				Controller: ptr(true)}}
		}
		pods = append(pods, p)
	}
	return pods, sets
}

// sameStatus compares what both have made of a status. A condition that has begun with it began now in both:
// Kubernetes' own code takes that time from the clock on the wall.
func sameStatus(
	t *testing.T, theirs policyv1.PodDisruptionBudgetStatus, mine *op.PodDisruptionBudgetStatus, now time.Time,
	from *op.PodDisruptionBudgetStatus,
) (want, got *op.PodDisruptionBudgetStatus, same bool) {
	t.Helper()
	want, got = ourBudget(t, &policyv1.PodDisruptionBudget{Status: theirs}).GetStatus(), proto.CloneOf(mine)
	before := disruption.Condition(from).GetLastTransitionTime()
	for _, s := range []*op.PodDisruptionBudgetStatus{want, got} {
		if c := disruption.Condition(s); c != nil && (before == nil || !proto.Equal(c.GetLastTransitionTime(), before)) {
			if c.GetLastTransitionTime() == nil {
				t.Errorf("there is no time in %v", c)
			}
			c.LastTransitionTime = value.Time(now)
		}
	}
	return want, got, proto.Equal(want, got)
}

// ourBudget returns a budget as Monoplane has it.
func ourBudget(t *testing.T, b *policyv1.PodDisruptionBudget) *op.PodDisruptionBudget {
	t.Helper()
	return converted(t, b, &op.PodDisruptionBudget{})
}

// longAgo is before any time that Kubernetes' code takes from the clock on the wall.
var longAgo = time.Unix(1_700_000_000, 0)

// countedAnswer is the status of a budget once it is counted, and whether it is another; which evicted pods the budget
// remembers then, and when one of them is overdue.
type countedAnswer struct {
	Status     policyv1.PodDisruptionBudgetStatus
	Written    bool
	Remembered map[string]metav1.Time
	End        time.Time
}

// spec: DISR-1
func TestBudgetsAreCountedAlike(t *testing.T) {
	r := random(t)
	now := longAgo
	kinds := map[string]int{}
	for range *count {
		b := countedBudget(r, now)
		pods, sets := budgetPods(r, now)
		o := ourBudget(t, b)
		var mine []*corev1.Pod
		var theirs []*v1.Pod
		scale, known := int32(0), map[types.UID]bool{}
		for _, p := range pods {
			if !disruption.Selects(o, p.Labels) {
				continue
			}
			mine, theirs = append(mine, ourPod(t, p)), append(theirs, p)
			if owner := metav1.GetControllerOf(p); owner != nil && !known[owner.UID] {
				known[owner.UID] = true
				for _, s := range sets {
					if s.UID == owner.UID {
						scale += *s.Spec.Replicas
					}
				}
			}
		}
		theirAnswer := ask[countedAnswer](t, "counted-budgets", b, pods, sets, theirs, now)
		want := theirAnswer.Status
		res, err := budget.Of(o, mine, scale, now)
		if err != nil {
			kinds["failed"]++
			res.Status = proto.CloneOf(o.GetStatus())
			disruption.Fail(res.Status, err.Error(), now)
			// The words of failures are each one's own.
			if c := apimeta.FindStatusCondition(want.Conditions, disruption.Allowed); c != nil && c.Message != "" {
				c.Message = err.Error()
			}
		}
		if w, g, same := sameStatus(t, want, res.Status, now, o.GetStatus()); !same {
			t.Fatalf("%v\nof %d pods, scale %d:\nKubernetes %v\nMonoplane  %v", b, len(mine), scale, w, g)
		}
		if err != nil {
			continue
		}
		remembered, end := theirAnswer.Remembered, theirAnswer.End
		var overdue, expected []string
		for _, p := range res.Overdue {
			overdue = append(overdue, p.GetMetadata().GetName())
		}
		for _, p := range theirs {
			_, was := b.Status.DisruptedPods[p.Name]
			if _, still := remembered[p.Name]; was && !still && p.DeletionTimestamp == nil {
				expected = append(expected, p.Name)
			}
		}
		if !end.Equal(res.Again) || !slices.Equal(overdue, expected) {
			t.Fatalf("%v: again at %v, overdue %v for Kubernetes; %v, %v for Monoplane", b.Status.DisruptedPods, end,
				expected, res.Again, overdue)
		}
		again := b.DeepCopy()
		again.Status = want
		written := ask[countedAnswer](t, "counted-budgets", again, pods, sets, theirs, now).Written
		second, err := budget.Of(ourBudget(t, again), mine, scale, now)
		if written || err != nil || !budget.Same(ourBudget(t, again).GetStatus(), second.Status) {
			t.Fatalf("counted again:\nKubernetes writes %t\nMonoplane  %v (%v)\nwas %v", written, second.Status, err, want)
		}
		kinds[fmt.Sprint("some allowed: ", res.Status.GetDisruptionsAllowed() > 0)]++
		kinds[fmt.Sprint("some remembered: ", len(remembered) > 0)]++
		kinds[fmt.Sprint("some overdue: ", len(overdue) > 0)]++
	}
	t.Log(kinds)
	for _, k := range []string{"failed", "some allowed: true", "some allowed: false", "some remembered: true",
		"some overdue: true"} {
		if kinds[k] < *count/100 {
			t.Errorf("%s: only %d of %d", k, kinds[k], *count)
		}
	}
}

// spec: DISR-1
func TestBudgetsSayAlikeWhetherTheyAllow(t *testing.T) {
	r := random(t)
	now := longAgo
	for range *count {
		b := countedBudget(r, now)
		o := ourBudget(t, b)
		before := proto.CloneOf(o.GetStatus())
		theirs := b.DeepCopy()
		pdbhelper.UpdateDisruptionAllowedCondition(theirs)
		s := o.GetStatus()
		disruption.SetAllowed(s, now)
		if want, got, same := sameStatus(t, theirs.Status, s, now, before); !same {
			t.Fatalf("%v:\nKubernetes %v\nMonoplane  %v", b.Status, want, got)
		}
		b.Generation = b.Status.ObservedGeneration
		b.Status = theirs.Status
		if !pdbhelper.ConditionsAreUpToDate(b) {
			t.Fatalf("%v: not up to date", b.Status)
		}
	}
}
