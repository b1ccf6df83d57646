package cache

import (
	"context"
	"fmt"
	"strconv"
)

// WaitFor waits until the cache reflects the given resourceVersion, or ctx ends. With the resourceVersion that a write
// of this kind returned, what follows reads that write. An empty one does not wait.
func (c *Cache[T]) WaitFor(ctx context.Context, resourceVersion string) error {
	if resourceVersion == "" {
		return nil
	}
	want, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("cache: bad resourceVersion %q", resourceVersion)
	}
	return c.wait(ctx, func() bool { return c.revision >= want })
}

// WaitGone waits until the cache knows that an object is being deleted, or is no more, or ctx ends: the answer to the
// deletion of an object that goes at once has no resourceVersion of its own for which one could wait.
func (c *Cache[T]) WaitGone(ctx context.Context, key Key, uid string) error {
	return c.wait(ctx, func() bool {
		o, ok := c.objects[key]
		return !ok || o.GetMetadata().GetUid() != uid || o.GetMetadata().GetDeletionTimestamp() != nil
	})
}

// wait waits until the content, of which done is asked under its lock, is as wanted.
func (c *Cache[T]) wait(ctx context.Context, done func() bool) error {
	for {
		c.mu.Lock()
		if done() {
			c.mu.Unlock()
			return nil
		}
		if c.advanced == nil {
			c.advanced = make(chan struct{})
		}
		advanced := c.advanced
		c.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Revision returns the newest resourceVersion that the content reflects; empty before the first sync.
func (c *Cache[T]) Revision() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.revision == 0 {
		return ""
	}
	return strconv.FormatUint(c.revision, 10)
}

// setRevision notes how far the content has come.
func (c *Cache[T]) setRevision(r uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = r
	if c.advanced != nil {
		close(c.advanced)
		c.advanced = nil
	}
}

// put stores o and returns what was there before.
func (c *Cache[T]) put(k Key, o T) (old T, had bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had = c.objects[k]
	if had {
		c.unindex(k, old)
	}
	c.objects[k] = o
	for name, of := range c.cfg.Indexes {
		c.file(name, of, k, o)
	}
	return old, had
}

// file puts o where an index finds it.
func (c *Cache[T]) file(index string, of func(T) []string, k Key, o T) {
	for _, v := range of(o) {
		m := c.indexes[index][v]
		if m == nil {
			m = map[Key]T{}
			c.indexes[index][v] = m
		}
		m[k] = o
	}
}

// remove drops an object and returns what was there.
func (c *Cache[T]) remove(k Key) (old T, had bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had = c.objects[k]
	if had {
		c.unindex(k, old)
		delete(c.objects, k)
	}
	return old, had
}

func (c *Cache[T]) unindex(k Key, o T) {
	for name, f := range c.cfg.Indexes {
		for _, v := range f(o) {
			m := c.indexes[name][v]
			delete(m, k)
			if len(m) == 0 {
				delete(c.indexes[name], v)
			}
		}
	}
}
