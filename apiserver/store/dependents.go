package store

import (
	"cmp"
	"slices"

	"monoplane.dev/object"
)

// Dependents is how many objects of a kind name one owner.
type Dependents struct {
	Kind  *object.Kind
	Count int
}

// Dependents returns which kinds have objects that name the owner with this uid and are not being deleted, sorted by
// resource. It asks the caches, which may be a little behind, and costs a look-up for each kind.
func (s *Store) Dependents(uid string) []Dependents {
	var found []Dependents
	for kind, k := range s.byKind {
		if n := k.cache.Dependents(uid); n > 0 {
			found = append(found, Dependents{kind, n})
		}
	}
	slices.SortFunc(found, func(a, b Dependents) int { return cmp.Compare(a.Kind.Resource(), b.Kind.Resource()) })
	return found
}
