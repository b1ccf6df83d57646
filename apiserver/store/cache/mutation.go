package cache

import (
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/object"
)

// digest is a hash of an object's whole content.
func digest(o object.Object) uint64 {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(o)
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// note remembers the content of an item, if mutations are to be detected.
func (c *Cache) note(item *Item) {
	if c.cfg.DetectMutations && item != nil {
		item.digest = digest(item.Object)
	}
}

// Mutated returns an error that names an object which somebody has changed after it was stored. It looks at
// present objects and at the history, and only works with DetectMutations.
func (c *Cache) Mutated() error {
	if !c.cfg.DetectMutations {
		return nil
	}
	c.mu.Lock()
	items := c.current().items.Values()
	for _, ch := range c.log.chunks {
		for _, s := range ch.states {
			items = append(items, s.prev, s.cur)
		}
	}
	c.mu.Unlock()
	for _, item := range items {
		if item != nil && digest(item.Object) != item.digest {
			return fmt.Errorf("%s %s at revision %d was changed after it was stored", c.cfg.Kind.Resource(), item.Key, item.Revision)
		}
	}
	return nil
}
