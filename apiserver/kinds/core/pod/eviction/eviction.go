// Package eviction holds the rules by which budgets allow or forbid the eviction of a pod, as one pure function: Judge
// takes the pod and the budgets of its namespace as the store has them, and says what becomes of the budget. The
// registry calls it anew for every attempt of its compare-and-swap, whose transaction compares the revisions of the
// pod and of the budget, and writes both: no interleaving of evictions, and of whatever else changes the two, takes
// more from a budget than it has (spec: DISR-2).
//
// # What becomes of the budget
//
//	the pod is pending, has ended, or is being deleted       no budget counts
//	no budget selects it                                     it goes
//	more than one selects it                                 refused: 500
//	it is not ready, and the budget's policy is AlwaysAllow,
//	or at least as many pods are healthy as must be          it goes, the budget stays as it is and is compared
//	the budget's status is of an older generation            refused: 429, try again in ten seconds
//	the budget allows none                                   refused: 429
//	the budget allows some                                   it goes, the budget allows one less
//
// The rules are those of Kubernetes, which test/oracle compares. The package knows no store, no context and no clock.
package eviction

import (
	"fmt"
	"maps"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/phase"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

const (
	// Cause is the type of the cause in the Status of an eviction that a budget forbids.
	Cause = "DisruptionBudget"
	// maxDisrupted is how many evicted pods a budget remembers. That many whom the controller has not seen going mean
	// that it sees nothing.
	maxDisrupted = 2000
	// lagSeconds is after how long to ask again while the controller has not counted what a changed budget is about.
	lagSeconds = 10

	forbidden = "Cannot evict pod as it would violate the pod's disruption budget."
)

// Verdict is what a permitted eviction does with the budget.
type Verdict struct {
	// Budget is the one by which the pod was judged; nil for none. The transaction compares its revision.
	Budget *policyv1.PodDisruptionBudget
	// Next is the budget as the transaction leaves it; nil when it stays as it is.
	Next *policyv1.PodDisruptionBudget
}

// Exempt says whether no budget counts: nothing of what serves would be lost with the pod.
func Exempt(p *corev1.Pod) bool {
	switch p.GetStatus().GetPhase() {
	case "", phase.Pending:
		return true
	}
	return phase.Terminal(p) || p.GetMetadata().GetDeletionTimestamp() != nil
}

// Judge says what the eviction of a pod does, or why it is refused. The budgets are all of its namespace.
func Judge(p *corev1.Pod, budgets []*policyv1.PodDisruptionBudget, now time.Time) (Verdict, error) {
	if Exempt(p) {
		return Verdict{}, nil
	}
	var b *policyv1.PodDisruptionBudget
	for _, other := range budgets {
		if !disruption.Selects(other, p.GetMetadata().GetLabels()) {
			continue
		}
		if b != nil {
			return Verdict{}, apierrors.New(apierrors.InternalError, "This pod has more than one PodDisruptionBudget, "+
				"which the eviction subresource does not support.")
		}
		b = other
	}
	if b == nil || !disruption.Healthy(p) && spared(b) {
		return Verdict{Budget: b}, nil
	}
	if err := exhausted(b); err != nil {
		return Verdict{}, err
	}
	return Verdict{Budget: b, Next: less(b, p.GetMetadata().GetName(), now)}, nil
}

// spared says whether pods that are not ready go without being counted.
func spared(b *policyv1.PodDisruptionBudget) bool {
	s := b.GetStatus()
	return b.GetSpec().GetUnhealthyPodEvictionPolicy() == disruption.AlwaysAllow ||
		s.GetCurrentHealthy() >= s.GetDesiredHealthy() && s.GetDesiredHealthy() > 0
}

// exhausted says why a budget allows no eviction; nil when it does.
func exhausted(b *policyv1.PodDisruptionBudget) error {
	s, name := b.GetStatus(), b.GetMetadata().GetName()
	switch {
	case s.GetObservedGeneration() < b.GetMetadata().GetGeneration():
		return Lagging(name)
	case len(s.GetDisruptedPods()) > maxDisrupted:
		return apierrors.NewForbidden(policyv1.PodDisruptionBudgetKind, name,
			"DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case s.GetDisruptionsAllowed() > 0:
		return nil
	}
	return apierrors.New(apierrors.TooManyRequests, "%s", forbidden).
		WithCause(apierrors.Cause{Type: Cause, Message: reason(name, s)})
}

// Lagging refuses an eviction for now, because the budget is not settled.
func Lagging(budget string) error {
	return apierrors.New(apierrors.TooManyRequests, "%s", forbidden).WithRetryAfter(lagSeconds).
		WithCause(apierrors.Cause{
			Type: Cause, Message: fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget),
		})
}

// reason says why a budget allows none.
func reason(name string, s *policyv1.PodDisruptionBudgetStatus) string {
	c := disruption.Condition(s)
	why := c.GetStatus() == "False" && c.GetMessage() != ""
	switch {
	case why && c.GetReason() == disruption.SyncFailed: // the numbers mean nothing then
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s",
			name, c.GetMessage())
	case s.GetCurrentHealthy() <= s.GetDesiredHealthy():
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			name, s.GetDesiredHealthy(), s.GetCurrentHealthy())
	case why:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s",
			name, c.GetReason(), c.GetMessage())
	default:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", name)
	}
}

// less returns the budget with one eviction less, and the pod remembered: the controller does not count it as healthy
// although it may yet see it so.
func less(b *policyv1.PodDisruptionBudget, pod string, now time.Time) *policyv1.PodDisruptionBudget {
	s := b.GetStatus().Shallow()
	s.DisruptionsAllowed--
	if s.DisruptionsAllowed == 0 {
		disruption.SetAllowed(s, now)
	}
	if s.DisruptedPods = maps.Clone(s.DisruptedPods); s.DisruptedPods == nil {
		s.DisruptedPods = make(map[string]*metav1.Time, 1)
	}
	s.DisruptedPods[pod] = value.Time(now)
	return &policyv1.PodDisruptionBudget{Metadata: b.GetMetadata().Shallow(), Spec: b.GetSpec(), Status: s}
}
