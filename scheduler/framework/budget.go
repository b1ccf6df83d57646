package framework

import (
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
)

// Budget is a PodDisruptionBudget as preemption weighs it: best effort (spec: PREEMPT-3).
type Budget struct {
	Namespace string
	// Selector says which pods of the namespace it is about.
	Selector labels.Selector
	// Allowed is how many of them may be disrupted at present.
	Allowed int32
	// Disrupted are the names of pods that are counted as disrupted already.
	Disrupted map[string]struct{}
}

// SetBudgets takes the budgets of the cluster. It must not be called during a decision.
func (s *Snapshot) SetBudgets(b []*Budget) { s.budgets = b }

// Budgets returns the budgets of the cluster.
func (s *Snapshot) Budgets() []*Budget { return s.budgets }

// About says whether the budget is about a pod, which has not been counted as disrupted yet.
func (b *Budget) About(p *corev1.Pod) bool {
	m := p.GetMetadata()
	if m.GetNamespace() != b.Namespace || len(m.GetLabels()) == 0 || b.Selector.Empty() ||
		!b.Selector.Matches(labels.Set(m.GetLabels())) {
		return false
	}
	_, counted := b.Disrupted[m.GetName()]
	return !counted
}
