// Package bodycache keeps the encoded bodies of stored objects, so that a revision of an object is encoded
// once, however many lists and watchers carry it.
//
// Guarantees: the cache never holds more than its limit in bytes; one body is encoded by one goroutine while
// the others wait for it; a body is only ever handed out for the object it was made from, by kind, revision
// and uid. Bodies are shared and must not be changed.
//
// The cache is for objects as they are stored. Answers to writes, dry runs above all, must not go through
// it: their content may be one that no revision has.
package bodycache

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"monoplane.dev/object"
)

// Form tells the encodings of one object apart. The user of the cache chooses the numbers.
type Form uint8

// Encoder appends the encoding of o to b.
type Encoder func(b []byte, o object.Object) []byte

const (
	shardCount = 16
	// overhead is a rough count of the memory that an entry takes beside its body.
	overhead = 160
	// maxScratch is the largest scratch buffer that is kept.
	maxScratch = 1 << 20
)

// Cache is a bounded cache of encoded bodies. It is safe for concurrent use.
type Cache struct {
	shards  [shardCount]shard
	scratch sync.Pool
	encoded atomic.Int64
}

type key struct {
	kind     *object.Kind
	revision uint64
	// deleted keeps the last state of an object that left a watcher's selection apart from the state that
	// others see at the same revision.
	deleted bool
	form    Form
}

type entry struct {
	once sync.Once
	uid  string
	body []byte
	// size is the length of body once that is known to the shard, whose lock guards it.
	size int64
}

// New returns a cache that holds at most limit bytes. A limit of 0 or less makes one that holds nothing.
func New(limit int64) *Cache {
	c := &Cache{scratch: sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}}
	for i := range c.shards {
		c.shards[i].half = limit / shardCount / 2
	}
	return c
}

// Get returns the body of o in the given form, made by encode when it is not there yet. Deleted says that o
// is the object of a DELETED event. Objects without a revision are encoded each time.
func (c *Cache) Get(o object.Object, form Form, deleted bool, encode Encoder) []byte {
	meta := o.GetMetadata()
	revision, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64)
	if err != nil {
		return c.encode(o, encode)
	}
	k := key{kind: o.ObjectKind(), revision: revision, deleted: deleted, form: form}
	s := &c.shards[revision%shardCount]
	e, created := s.get(k, meta.GetUid())
	if e.uid != meta.GetUid() {
		return c.encode(o, encode)
	}
	e.once.Do(func() { e.body = c.encode(o, encode) })
	if created {
		s.grew(k, e)
	}
	return e.body
}

// Encoded returns how many bodies had to be made so far.
func (c *Cache) Encoded() int64 { return c.encoded.Load() }

// encode makes a body of exactly the size it needs.
func (c *Cache) encode(o object.Object, encode Encoder) []byte {
	c.encoded.Add(1)
	scratch := c.scratch.Get().(*[]byte)
	b := encode((*scratch)[:0], o)
	body := slices.Clip(slices.Clone(b))
	if cap(b) <= maxScratch {
		*scratch = b
		c.scratch.Put(scratch)
	}
	return body
}
