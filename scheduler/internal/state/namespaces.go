package state

import (
	"maps"
	"slices"

	"monoplane.dev/scheduler/framework"
)

// namespaces are the labels of namespaces that the snapshot does not have yet.
type namespaces map[string]map[string]string

// SetNamespace takes the labels of a namespace; nil when it is gone.
func (s *State) SetNamespace(name string, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[name] = labels
}

func (n namespaces) update(snapshot *framework.Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		snapshot.SetNamespace(name, n[name])
	}
	clear(n)
}
