// Package writes remembers what a controller has written until its cache has it, so that it reads its own writes: who
// judges by a cache that is behind makes a second of what it has just made.
//
// What is remembered is one number for each owner, and what was removed for it; nothing after Settle. It waits for no
// longer than settleTime: a cache that does not follow is an error, and the look at the owner is tried again.
package writes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"monoplane.dev/client/cache"
	"monoplane.dev/object"
)

// settleTime is how long the cache may take to have what was written.
const settleTime = 30 * time.Second

// Memory remembers what was written of a kind, by the uid of the owner for which it was. Use New.
type Memory[T object.Object] struct {
	cache *cache.Cache[T]

	mu sync.Mutex
	// written is what the cache may not have yet.
	written map[string]*writes
}

// writes are those for one owner.
type writes struct {
	// revision is that of the newest object that was made or changed.
	revision uint64
	// gone are the objects that were removed.
	gone []ref
}

type ref struct {
	key cache.Key
	uid string
}

// New returns a Memory of what is to show up in a cache.
func New[T object.Object](seen *cache.Cache[T]) *Memory[T] {
	return &Memory[T]{cache: seen, written: map[string]*writes{}}
}

// Settle waits until the cache has what was written for an owner.
func (m *Memory[T]) Settle(ctx context.Context, owner string) error {
	m.mu.Lock()
	w := m.written[owner]
	delete(m.written, owner)
	m.mu.Unlock()
	if w == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var err error
	if w.revision > 0 {
		err = m.cache.WaitFor(limited, strconv.FormatUint(w.revision, 10))
	}
	for len(w.gone) > 0 && err == nil {
		if err = m.cache.WaitGone(limited, w.gone[0].key, w.gone[0].uid); err == nil {
			w.gone = w.gone[1:]
		}
	}
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if later := m.written[owner]; later != nil {
		w.revision, w.gone = max(w.revision, later.revision), append(w.gone, later.gone...)
	}
	m.written[owner] = w
	var none T
	return fmt.Errorf("wait for the cache of %s: %w", none.ObjectKind().Plural, err)
}

// Forget drops what is remembered of an owner that is gone.
func (m *Memory[T]) Forget(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.written, owner)
}

// Wrote has Settle wait for an object that was made or changed.
func (m *Memory[T]) Wrote(owner string, o T) {
	revision, err := strconv.ParseUint(o.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(owner)
	w.revision = max(w.revision, revision)
}

// Gone has Settle wait until the cache knows that an object was removed.
func (m *Memory[T]) Gone(owner string, o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(owner)
	w.gone = append(w.gone, ref{cache.KeyOf(o), o.GetMetadata().GetUid()})
}

// of returns the writes for an owner. The caller holds the lock.
func (m *Memory[T]) of(owner string) *writes {
	w := m.written[owner]
	if w == nil {
		w = &writes{}
		m.written[owner] = w
	}
	return w
}
