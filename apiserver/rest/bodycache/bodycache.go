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

	// kinds numbers the kinds; it is replaced, never changed, by the holder of addKind.
	kinds   atomic.Pointer[[]*object.Kind]
	addKind sync.Mutex
}

// key packs revision, kind, form and deletion into one number, which maps find fastest:
//
//	revision << 10 | kind << 3 | form << 1 | deleted
//
// Deletion keeps the last state of an object that left a watcher's selection apart from the state that others
// see at the same revision.
type key uint64

const (
	maxRevision = 1<<54 - 1
	maxKinds    = 128
	// MaxForm is the largest Form.
	MaxForm = 3
)

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
	k, ok := c.key(o.ObjectKind(), meta.GetResourceVersion(), form, deleted)
	if !ok {
		return c.encode(o, encode)
	}
	s := &c.shards[uint64(k>>10)%shardCount]
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

func (c *Cache) key(kind *object.Kind, revision string, form Form, deleted bool) (key, bool) {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil || n > maxRevision || form > MaxForm {
		return 0, false
	}
	i, ok := c.kind(kind)
	k := key(n<<10 | i<<3 | uint64(form)<<1)
	if deleted {
		k |= 1
	}
	return k, ok
}

// kind returns the number of a kind. There are few, so that looking at all of them is quick.
func (c *Cache) kind(kind *object.Kind) (uint64, bool) {
	known := c.kinds.Load()
	if known != nil {
		for i, k := range *known {
			if k == kind {
				return uint64(i), true
			}
		}
	}
	c.addKind.Lock()
	defer c.addKind.Unlock()
	var list []*object.Kind
	if known = c.kinds.Load(); known != nil {
		list = *known
	}
	i := slices.Index(list, kind)
	if i < 0 {
		if i = len(list); i == maxKinds {
			return 0, false
		}
		list = append(slices.Clip(list), kind)
		c.kinds.Store(&list)
	}
	return uint64(i), true
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
