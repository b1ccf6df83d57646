// Package watchcache keeps all objects of a kind in memory, with the recent changes, and serves gets, lists at a
// revision and any number of watchers from there. It is fed with changes in the order of their revisions and
// knows nothing of where they come from.
//
// Guarantees: a list shows exactly one revision; a watcher sees every change after the revision it asked for
// exactly once and in order, or gets an error; a watcher that does not keep up is cut off and never delays the
// others. Objects are shared, never copied, and must not be changed by anyone.
//
// One revision can delete many objects, as when a lease expires, and a watcher that gets their events one by one may
// go away among them. The last of these events alone carries their revision, the others the one before, so that who
// has a revision has seen all of it. Who comes back with the revision before may have seen some of them, and is told
// to list again (Expired); who comes from further back sees them all.
//
// Two structures carry this. Objects are in copy-on-write B-trees, so that a list takes an O(1) copy and walks it
// outside all locks. Changes are appended to logs which watchers read by position: one for the whole kind,
// which is also the history that watches resume from, and one for each value of an indexed field (or each
// object) that somebody watches, so that a thousand agents, each watching the pods of its own node, cost
// nothing when the pod of another node changes.
package watchcache

import (
	"sync"
	"time"

	"monoplane.dev/internal/footprint"
	"monoplane.dev/internal/tree"
	"monoplane.dev/object"
)

// Item is one object as it is stored. It never changes.
type Item struct {
	// Key is "namespace/name", or "name" when the kind has no namespaces.
	Key    string
	Object object.Object
	// Revision is the object's mod revision.
	Revision int64
	// Size is the length of what is stored.
	Size int

	// recorded is what the object was when it was stored, with Mutated.
	recorded *record
}

// Change is one step in the history of a kind.
type Change struct {
	Key string
	// Item is the new state; nil when the object was deleted.
	Item *Item
	// Revision is when it happened. Revisions of one kind grow from change to change, but several deletions may share
	// one: see the package comment.
	Revision int64
}

// Config describes the kind and bounds its history. All fields but Kind have defaults.
type Config struct {
	Kind *object.Kind
	// Field returns the value of a selectable field besides metadata.name and metadata.namespace.
	Field func(o object.Object, name string) (value string, ok bool)
	// Indexes are selectable fields by which watchers and lists are indexed.
	Indexes []string
	// HistoryEvents and HistoryBytes bound the history; defaults 20 000 and 8 MiB. The bytes are those that would be
	// free without it: what replaced and deleted states take, and the changes themselves.
	HistoryEvents int
	HistoryBytes  int64
	// WatchBuffer is how many changes a watcher may lag behind; default 10 000.
	WatchBuffer int
	// BookmarkInterval is the time between bookmarks; default 1 min.
	BookmarkInterval time.Duration
	// Progress is shared by all kinds of a store.
	Progress *Progress
	// Mutated is told of objects that somebody has changed after they were stored: when one is replaced or deleted, at
	// changes of others, and by CheckMutations. It must not call the cache. Nil looks for none; it costs time and is for
	// tests.
	Mutated func(error)
}

// Cache holds one kind. All methods are safe for concurrent use, but changes are applied by one goroutine.
type Cache struct {
	cfg Config

	mu sync.RWMutex
	// meter counts what changes leave behind.
	meter footprint.Meter
	items tree.Tree[*Item]
	// indexes hold the same items by value and key; see indexKey.
	indexes []tree.Tree[*Item]
	// revision is that of the newest change, or of the last Replace.
	revision int64
	// since is the revision after which the history is complete.
	since int64
	// log is the history. topics are logs of parts of the kind, made when somebody watches that part.
	log       *topic
	topics    map[topicKey]*topic
	snapshots []*snapshot
	// live is a snapshot of the present, if one has been taken since the last change.
	live     *snapshot
	closed   error
	watchers int
	cutOff   int64
	// examined is the key of the item that was looked at last, with Mutated.
	examined string
	// followers are told of each change before anybody else.
	followers []func(was, is object.Object)
}

// New returns an empty cache. Nothing can be read from it before Replace.
func New(cfg Config) *Cache {
	if cfg.HistoryEvents <= 0 {
		cfg.HistoryEvents = 20_000
	}
	if cfg.HistoryBytes <= 0 {
		cfg.HistoryBytes = 8 << 20
	}
	if cfg.WatchBuffer <= 0 {
		cfg.WatchBuffer = 10_000
	}
	if cfg.BookmarkInterval <= 0 {
		cfg.BookmarkInterval = time.Minute
	}
	if cfg.Progress == nil {
		cfg.Progress = NewProgress()
	}
	return &Cache{
		cfg: cfg, log: newTopic(cfg.HistoryBytes), topics: map[topicKey]*topic{},
		indexes: make([]tree.Tree[*Item], len(cfg.Indexes)),
	}
}

// Kind returns the kind that the cache holds.
func (c *Cache) Kind() *object.Kind { return c.cfg.Kind }

// Get returns the newest state of an object, or nil.
func (c *Cache) Get(key string) *Item {
	c.mu.RLock()
	item, _ := c.items.Get(key)
	c.mu.RUnlock()
	return item
}

// Follow tells f of every object that there is, and from then on of every change, in order and before anybody can know
// of its revision: was is nil for a new object, is for one that is gone. It ends with the cache. f must be quick, and
// must not call the cache.
func (c *Cache) Follow(f func(was, is object.Object)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range c.items.From("") {
		f(nil, item.Object)
	}
	c.followers = append(c.followers, f)
}

// tell tells the followers of a change.
func (c *Cache) tell(prev, cur *Item) {
	for _, f := range c.followers {
		f(objectOf(prev), objectOf(cur))
	}
}

func objectOf(item *Item) object.Object {
	if item == nil {
		return nil
	}
	return item.Object
}

// Len returns the number of objects.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.items.Len()
}

// Stats are figures for metrics.
type Stats struct {
	Objects, Watchers, HistoryEvents int
	HistoryBytes, CutOff             int64
}

// Stats returns the present figures.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Stats{
		Objects: c.items.Len(), Watchers: c.watchers, CutOff: c.cutOff,
		HistoryEvents: int(c.log.end - c.log.start), HistoryBytes: c.log.bytes,
	}
}
