package state

import (
	"maps"
	"slices"

	"monoplane.dev/scheduler/framework"
)

// groups are what pods belong to together.
type groups struct {
	all map[groupName]*framework.Group
	// changed says that the snapshot does not have all of them yet.
	changed bool
}

type groupName struct {
	namespace, apiVersion, kind, name string
}

func nameOf(g *framework.Group) groupName {
	return groupName{g.Namespace, g.APIVersion, g.Kind, g.Name}
}

// SetGroup adds a group, or takes its newer state. A workload that is scaled is none: only its selector counts.
func (s *State) SetGroup(g *framework.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := nameOf(g)
	if old := s.groups.all[name]; old != nil && old.Service == g.Service && old.Selector.String() == g.Selector.String() {
		return
	}
	s.groups.all[name], s.groups.changed = g, true
}

// RemoveGroup drops the group of that name.
func (s *State) RemoveGroup(g *framework.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups.all, nameOf(g))
	s.groups.changed = true
}

func (g *groups) update(snapshot *framework.Snapshot) {
	if g.changed {
		snapshot.SetGroups(slices.Collect(maps.Values(g.all)))
		g.changed = false
	}
}
