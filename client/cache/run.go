package cache

import (
	"context"

	"monoplane.dev/object"
)

// Run feeds the cache until ctx ends, and returns ctx's error. It must be called once.
func (c *Cache[T]) Run(ctx context.Context) error {
	return NewFeed(c.cfg, Sink[T](filler[T]{c})).Run(ctx)
}

// filler is how a cache takes what its feed reads.
type filler[T object.Object] struct{ *Cache[T] }

func (c filler[T]) Begin() { c.initial = map[Key]T{} }

func (c filler[T]) Upsert(o T) {
	if c.initial != nil {
		c.initial[KeyOf(o)] = o
		return
	}
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	c.upsert(KeyOf(o), o)
}

func (c filler[T]) Remove(o T) {
	if c.initial != nil {
		delete(c.initial, KeyOf(o))
		return
	}
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	if _, had := c.remove(KeyOf(o)); had {
		c.deleted(o)
	}
}

func (c filler[T]) End() {
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	c.replace(c.initial)
	c.initial = nil
}

func (c filler[T]) Reach(revision uint64) {
	c.setRevision(revision)
	if c.HasSynced() {
		return
	}
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	close(c.synced)
	for _, h := range c.handlers {
		if h.OnSync != nil {
			h.OnSync()
		}
	}
}

// replace makes the content what was read, and reports the difference.
func (c *Cache[T]) replace(state map[Key]T) {
	for _, o := range c.List("", nil) {
		k := KeyOf(o)
		if _, ok := state[k]; !ok {
			c.remove(k)
			c.deleted(o)
		}
	}
	for k, o := range state {
		c.upsert(k, o)
	}
}

func (c *Cache[T]) upsert(k Key, o T) {
	old, had := c.put(k, o)
	if had && old.GetMetadata().GetUid() != o.GetMetadata().GetUid() {
		// Another object took the name while we did not look: two changes, not one.
		c.deleted(old)
		had = false
	}
	if !had {
		for _, h := range c.handlers {
			if h.OnAdd != nil {
				h.OnAdd(o)
			}
		}
		return
	}
	if old.GetMetadata().GetResourceVersion() == o.GetMetadata().GetResourceVersion() {
		return // seen before: read again after a relist
	}
	for _, h := range c.handlers {
		if h.OnUpdate != nil {
			h.OnUpdate(old, o)
		}
	}
}

func (c *Cache[T]) deleted(o T) {
	for _, h := range c.handlers {
		if h.OnDelete != nil {
			h.OnDelete(o)
		}
	}
}
