package state

import (
	"cmp"
	"maps"
	"slices"

	"monoplane.dev/client/cache"
	"monoplane.dev/scheduler/framework"
)

// budgets are the disruption budgets of the cluster.
type budgets struct {
	all map[cache.Key]*framework.Budget
	// changed says that the snapshot does not have them as they are.
	changed bool
}

// SetBudget takes a disruption budget, which is not changed any more; nil when it is gone.
func (s *State) SetBudget(key cache.Key, b *framework.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budgets.changed = true
	if b == nil {
		delete(s.budgets.all, key)
		return
	}
	s.budgets.all[key] = b
}

func (b *budgets) update(snapshot *framework.Snapshot) {
	if !b.changed {
		return
	}
	b.changed = false
	list := make([]*framework.Budget, 0, len(b.all))
	for _, key := range slices.SortedFunc(maps.Keys(b.all), func(a, b cache.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		list = append(list, b.all[key])
	}
	snapshot.SetBudgets(list)
}
