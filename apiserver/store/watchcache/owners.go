package watchcache

import (
	"slices"
	"strings"
)

// owners counts, for each uid, how many objects of the kind name it as an owner and are not being deleted themselves.
// Objects without owners cost nothing.
type owners map[string]int

// replace notes that prev has become cur; either may be nil.
func (o *owners) replace(prev, cur *Item) {
	for _, uid := range ownersOf(prev) {
		if (*o)[uid]--; (*o)[uid] <= 0 {
			delete(*o, uid)
		}
	}
	for _, uid := range ownersOf(cur) {
		if *o == nil {
			*o = owners{}
		}
		if _, known := (*o)[uid]; !known {
			uid = strings.Clone(uid) // it outlives the object
		}
		(*o)[uid]++
	}
}

func ownersOf(item *Item) []string {
	if item == nil {
		return nil
	}
	m := item.Object.GetMetadata()
	refs := m.GetOwnerReferences()
	if len(refs) == 0 || m.GetDeletionTimestamp() != nil {
		return nil
	}
	uids := make([]string, 0, len(refs))
	for _, ref := range refs {
		if !slices.Contains(uids, ref.GetUid()) {
			uids = append(uids, ref.GetUid())
		}
	}
	return uids
}

// Dependents returns how many objects name the owner with this uid and are not being deleted.
func (c *Cache) Dependents(uid string) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.owners[uid]
}
