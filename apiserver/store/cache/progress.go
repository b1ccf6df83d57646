package cache

import (
	"context"
	"sync"
	"sync/atomic"
)

// Progress is the revision up to which all kinds of a store are complete. Readers that need a revision wait
// here until it has been applied.
type Progress struct {
	revision atomic.Int64
	waiting  atomic.Int32

	mu      sync.Mutex
	waiters map[*waiter]struct{}
}

type waiter struct {
	revision int64
	done     chan struct{}
}

// NewProgress returns a progress at revision 0.
func NewProgress() *Progress { return &Progress{waiters: map[*waiter]struct{}{}} }

// Revision returns the revision that all kinds have reached.
func (p *Progress) Revision() int64 { return p.revision.Load() }

// Set says that everything up to revision has been applied, and wakes those who wait for it.
func (p *Progress) Set(revision int64) {
	p.revision.Store(revision)
	// A waiter announces itself before it looks at the revision, so that one of the two sees the other.
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiters {
		if w.revision <= revision {
			close(w.done)
			delete(p.waiters, w)
		}
	}
}

// Wait returns when revision has been applied, or with ctx's error.
func (p *Progress) Wait(ctx context.Context, revision int64) error {
	if p.revision.Load() >= revision {
		return nil
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	w := &waiter{revision: revision, done: make(chan struct{})}
	p.mu.Lock()
	if p.revision.Load() >= revision {
		p.mu.Unlock()
		return nil
	}
	p.waiters[w] = struct{}{}
	p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiters, w)
		p.mu.Unlock()
		return ctx.Err()
	}
}
