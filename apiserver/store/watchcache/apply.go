package watchcache

import (
	"strconv"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/internal/tree"
	"monoplane.dev/object"
)

// Replace sets the content of the cache to items, in the order of their keys, as they are at revision. All
// watches end, because what happened in between is not known.
func (c *Cache) Replace(items []*Item, revision int64, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.items
	c.items = tree.Tree[*Item]{}
	c.indexes = make([]tree.Tree[*Item], len(c.cfg.Indexes))
	for _, item := range items {
		c.note(item)
		c.items.Set(item.Key, item)
		c.index(nil, item)
	}
	c.tellReplaced(&before)
	c.revision, c.since = revision, revision
	c.snapshots, c.live = nil, nil
	c.restart(why)
}

// tellReplaced tells the followers how what there is differs from what there was.
func (c *Cache) tellReplaced(before *tree.Tree[*Item]) {
	if len(c.followers) == 0 {
		return
	}
	for key, was := range before.From("") {
		if _, there := c.items.Get(key); !there {
			c.tell(was, nil)
		}
	}
	for key, is := range c.items.From("") {
		was, _ := before.Get(key)
		c.tell(was, is)
	}
}

// Close ends all watches with err. Further ones get it at once.
func (c *Cache) Close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = err
	c.restart(err)
}

// restart ends the present watches with err.
func (c *Cache) restart(err error) {
	for _, t := range c.topics {
		t.err = err
		t.broadcast()
	}
	c.log.err = err
	c.log.broadcast()
	c.topics = map[topicKey]*topic{}
	c.log = newTopic(c.cfg.HistoryBytes)
}

// Apply takes a run of changes, oldest first, with all those of its last revision. Watchers see them when it returns.
func (c *Cache) Apply(changes []Change) {
	if len(changes) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var touched []*topic
	for i := range changes {
		touched = c.apply(&changes[i], c.splits(changes[i:]), touched)
	}
	c.examineSome()
	if dropped := c.log.trim(c.cfg.HistoryEvents, c.cfg.HistoryBytes); dropped > 0 {
		c.since = dropped
	}
	c.log.notify(c)
	for _, t := range touched {
		t.trim(c.cfg.WatchBuffer, c.cfg.HistoryBytes)
		t.notify(c)
	}
}

// splits says whether the first of changes is followed by another one at its revision.
func (c *Cache) splits(changes []Change) bool {
	for i := 1; i < len(changes) && changes[i].Revision == changes[0].Revision; i++ {
		if _, known := c.items.Get(changes[i].Key); known || changes[i].Item != nil {
			return true
		}
	}
	return false
}

func (c *Cache) apply(ch *Change, split bool, touched []*topic) []*topic {
	s := state{revision: ch.Revision, cur: ch.Item}
	c.note(ch.Item)
	if ch.Item != nil {
		s.prev, _ = c.items.Set(ch.Key, ch.Item)
	} else {
		s.prev, _ = c.items.Delete(ch.Key)
	}
	c.examine(s.prev)
	c.index(s.prev, s.cur)
	c.tell(s.prev, s.cur)
	s.left = c.left(s.prev, s.cur)
	c.closeSnapshot(ch.Revision)
	c.revision = ch.Revision

	e := object.Event{Type: object.Modified}
	switch {
	case s.cur == nil && s.prev == nil:
		return touched // deleted without ever having been seen
	case s.cur == nil:
		seen := ch.Revision
		if split {
			seen-- // see the package comment
		}
		e.Type, e.Object = object.Deleted, WithRevision(s.prev.Object, seen)
	case s.prev == nil:
		e.Type, e.Object = object.Added, s.cur.Object
	default:
		e.Object = s.cur.Object
	}
	c.log.append(e, s)
	if len(c.topics) == 0 {
		return touched
	}
	for _, k := range c.topicsOf(ch.Key, &s) {
		if t := c.topics[k]; t != nil {
			t.append(e, s)
			touched = append(touched, t)
		}
	}
	return touched
}

// left returns what an item leaves behind that has been replaced by cur, or deleted.
func (c *Cache) left(prev, cur *Item) int64 {
	const item = 64
	switch {
	case prev == nil:
		return 0
	case cur == nil:
		return item + c.meter.Of(prev.Object)
	default:
		return item + c.meter.Beside(prev.Object, cur.Object)
	}
}

// topicKey names a part of the kind that can be watched: an object, or all that have value in an indexed field.
type topicKey struct {
	// field is empty for a single object, whose key is then the value.
	field, value string
}

// topicsOf returns the parts that a change belongs to, each once.
func (c *Cache) topicsOf(key string, s *state) []topicKey {
	keys := make([]topicKey, 1, 1+2*len(c.cfg.Indexes))
	keys[0] = topicKey{value: key}
	for _, field := range c.cfg.Indexes {
		cur, hasCur := c.value(s.cur, field)
		prev, hasPrev := c.value(s.prev, field)
		if hasCur {
			keys = append(keys, topicKey{field, cur})
		}
		if hasPrev && (!hasCur || prev != cur) {
			keys = append(keys, topicKey{field, prev})
		}
	}
	return keys
}

func (c *Cache) value(item *Item, field string) (string, bool) {
	if item == nil {
		return "", false
	}
	return c.cfg.Field(item.Object, field)
}

// indexKey orders an index by value, then by key. A value cannot contain a zero byte.
func indexKey(value, key string) string { return value + "\x00" + key }

func (c *Cache) index(prev, cur *Item) {
	for i, field := range c.cfg.Indexes {
		old, hadOld := c.value(prev, field)
		if now, ok := c.value(cur, field); ok {
			if hadOld && old != now {
				c.indexes[i].Delete(indexKey(old, prev.Key))
			}
			c.indexes[i].Set(indexKey(now, cur.Key), cur)
		} else if hadOld {
			c.indexes[i].Delete(indexKey(old, prev.Key))
		}
	}
}

const (
	// crowd is from how many watchers on waking them is worth saving.
	crowd = 32
	// wakeEvery is the least time between two wake-ups of a crowd.
	wakeEvery = time.Millisecond
)

// notify wakes the readers of t: at once when they are few or have not been woken lately, otherwise a little
// later and then for all changes since. The cache is locked.
func (t *topic) notify(c *Cache) {
	if t.refs == 0 || t.pending {
		return
	}
	if t.refs < crowd {
		t.broadcast()
		return
	}
	now := time.Now()
	if wait := wakeEvery - now.Sub(t.woken); wait > 0 {
		t.pending = true
		time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			t.pending, t.woken = false, time.Now()
			t.broadcast()
		})
		return
	}
	t.woken = now
	t.broadcast()
}

// WithRevision returns o with another resourceVersion. Everything below metadata is shared with o.
func WithRevision(o object.Object, revision int64) object.Object {
	c := object.Shallow(o)
	meta := o.GetMetadata().Shallow()
	if meta == nil {
		meta = &metav1.ObjectMeta{}
	}
	meta.ResourceVersion = strconv.FormatInt(revision, 10)
	c.SetMetadata(meta)
	return c
}
