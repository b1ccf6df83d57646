package watchcache

import "slices"

// Oldest returns the objects that were written longest ago, as many as there are more than max, in the order of their
// writes. It looks at all objects when there are too many, and is meant to be called from time to time.
func (c *Cache) Oldest(max int) []*Item {
	c.mu.Lock()
	if c.items.Len() <= max {
		c.mu.Unlock()
		return nil
	}
	items := c.items.Copy()
	c.mu.Unlock()
	all := make([]*Item, 0, items.Len())
	for _, item := range items.From("") {
		all = append(all, item)
	}
	slices.SortFunc(all, func(a, b *Item) int { return int(a.Revision - b.Revision) })
	return all[:len(all)-max]
}
