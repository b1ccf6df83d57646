package scheduler

import (
	policyv1 "monoplane.dev/api/policy/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/scheduler/framework"
)

// setBudget takes a newer state of a disruption budget, by which preemption chooses its victims (spec: PREEMPT-3). A
// pod that waits for room is not tried again because of it: no budget keeps a victim.
func (s *Scheduler) setBudget(b *policyv1.PodDisruptionBudget) {
	disrupted := make(map[string]struct{}, len(b.GetStatus().GetDisruptedPods()))
	for name := range b.GetStatus().GetDisruptedPods() {
		disrupted[name] = struct{}{}
	}
	s.state.SetBudget(cache.KeyOf(b), &framework.Budget{
		Namespace: b.GetMetadata().GetNamespace(), Selector: labelselector.OrNothing(b.GetSpec().GetSelector()),
		Allowed: b.GetStatus().GetDisruptionsAllowed(), Disrupted: disrupted,
	})
}

func (s *Scheduler) budgetDeleted(b *policyv1.PodDisruptionBudget) {
	s.state.SetBudget(cache.KeyOf(b), nil)
}
