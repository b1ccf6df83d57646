package watchcache

import (
	"strings"
	"time"

	"monoplane.dev/internal/tree"
	"monoplane.dev/object"
)

// snapshot is the content of a cache for the revisions from..until, kept for lists that come in pages. until is
// 0 while nothing has changed since.
type snapshot struct {
	from, until int64
	items       *tree.Tree[*Item]
	used        time.Time
}

const (
	// A snapshot keeps objects alive that have changed since, so there are few, and not for long. A list that
	// finds none reads from etcd.
	maxSnapshots = 8
	snapshotAge  = 5 * time.Minute
)

// current returns a copy of the items as they are now. The cache is locked for writing.
func (c *Cache) current() *snapshot {
	if c.live == nil {
		c.live = &snapshot{from: c.revision, items: c.items.Copy()}
	}
	return c.live
}

// keep remembers s for the following pages of a list. The cache is locked for writing.
func (c *Cache) keep(s *snapshot) {
	s.used = time.Now()
	for _, old := range c.snapshots {
		if old == s {
			return
		}
	}
	c.snapshots = append(c.snapshots, s)
	c.forget()
}

// forget drops snapshots that are too many or too old.
func (c *Cache) forget() {
	oldest := time.Now().Add(-snapshotAge)
	kept := c.snapshots[:0]
	for i, s := range c.snapshots {
		if len(c.snapshots)-i <= maxSnapshots && s.used.After(oldest) {
			kept = append(kept, s)
		}
	}
	clear(c.snapshots[len(kept):])
	c.snapshots = kept
}

// closeSnapshot notes that the newest snapshot ends before revision.
func (c *Cache) closeSnapshot(revision int64) {
	if c.live != nil {
		c.live.until = revision - 1
		c.live = nil
	}
}

// Housekeep frees what nobody is going to ask for any more. It is called from time to time.
func (c *Cache) Housekeep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
}

// Page is a part of a list.
type Page struct {
	Objects []object.Object
	// Revision is the one revision that the list shows.
	Revision int64
	// Last is the key of the last object if there are more; otherwise empty.
	Last string
	// Remaining is how many more there are; -1 when it is not known.
	Remaining int64
}

// ListOptions say what to list. Exact, if not 0, is the revision wanted. After is the key to go on after.
type ListOptions struct {
	Selection
	Exact int64
	After string
	Limit int64
}

// List returns the objects that sel selects, in the order of their keys. ok is false when Exact is a revision
// that is not in memory.
func (c *Cache) List(opts ListOptions) (page Page, ok bool, err error) {
	f, err := c.compile(opts.Selection)
	if err != nil {
		return Page{}, false, err
	}
	// Read first, so that every change up to it is in the items below.
	applied := c.cfg.Progress.Revision()
	c.mu.Lock()
	snap := c.at(opts.Exact, applied)
	if snap == nil {
		c.mu.Unlock()
		return Page{}, false, nil
	}
	revision := max(c.revision, applied)
	if opts.Exact > 0 {
		revision = opts.Exact
	}
	// Without pages an index is a shorter way.
	if f.part != nil && opts.Limit == 0 && opts.After == "" && snap.until == 0 {
		src, prefix := c.source(f)
		c.mu.Unlock()
		page = collect(src, prefix, f, opts)
	} else {
		if opts.Limit > 0 && int64(snap.items.Len()) > opts.Limit {
			c.keep(snap)
		}
		c.mu.Unlock()
		page = collect(snap.items, f.prefix, f, opts)
	}
	page.Revision = revision
	return page, true, nil
}

// at returns the items at revision exact, or now when exact is 0. The cache is locked for writing.
func (c *Cache) at(exact, applied int64) *snapshot {
	if exact == 0 || exact >= c.revision && exact <= max(applied, c.revision) {
		return c.current()
	}
	for _, s := range c.snapshots {
		if s.from <= exact && exact <= s.until {
			s.used = time.Now()
			return s
		}
	}
	return nil
}

// source returns a copy of the tree that leads to what f selects in the shortest way, and the prefix of its keys
// there. The cache is locked for writing.
func (c *Cache) source(f *filter) (items *tree.Tree[*Item], prefix string) {
	switch {
	case f.part == nil:
		return c.current().items, f.prefix
	case f.part.field == "":
		return c.current().items, f.part.value
	default:
		return c.indexes[c.indexOf(f.part.field)].Copy(), indexKey(f.part.value, f.prefix)
	}
}

// collect walks the keys with prefix in items.
func collect(items *tree.Tree[*Item], prefix string, f *filter, opts ListOptions) Page {
	page := Page{Remaining: -1}
	if f.all() && opts.After == "" {
		n := items.Len()
		if opts.Limit > 0 {
			n = min(n, int(opts.Limit))
		}
		page.Objects = make([]object.Object, 0, n)
	}
	more := false
	last := ""
	for key, item := range items.From(max(prefix, opts.After)) {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if key == opts.After || !f.match(item) {
			continue
		}
		if opts.Limit > 0 && int64(len(page.Objects)) == opts.Limit {
			more = true
			break
		}
		page.Objects = append(page.Objects, item.Object)
		last = key
	}
	if more {
		page.Last = last
		if !f.selects() {
			page.Remaining = int64(rank(items, prefixEnd(prefix)) - items.Rank(last) - 1)
		}
	}
	return page
}

// rank returns how many keys are less than key. The empty key stands for the end.
func rank(items *tree.Tree[*Item], key string) int {
	if key == "" {
		return items.Len()
	}
	return items.Rank(key)
}

// prefixEnd returns the least key that is greater than all keys with prefix, which ends in "/" or is empty.
func prefixEnd(prefix string) string {
	if prefix == "" {
		return ""
	}
	return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
}
