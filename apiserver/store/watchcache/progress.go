package watchcache

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
	waiters map[int64]*waiter
	stopped error
}

// waiter stands for all who wait for one revision.
type waiter struct {
	done  chan struct{}
	count int
}

// NewProgress returns a progress at revision 0.
func NewProgress() *Progress { return &Progress{waiters: map[int64]*waiter{}} }

// Revision returns the revision that all kinds have reached.
func (p *Progress) Revision() int64 { return p.revision.Load() }

// Set says that everything up to revision has been applied, and wakes those who wait for it.
func (p *Progress) Set(revision int64) {
	old := p.revision.Swap(revision)
	// A waiter announces itself before it looks at the revision, so that one of the two sees the other.
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision-old < int64(len(p.waiters)) {
		for r := old + 1; r <= revision; r++ {
			p.wake(r)
		}
		return
	}
	for r := range p.waiters {
		if r <= revision {
			p.wake(r)
		}
	}
}

func (p *Progress) wake(revision int64) {
	if w := p.waiters[revision]; w != nil {
		close(w.done)
		delete(p.waiters, revision)
	}
}

// Stop says that there will be no more progress. Those who wait get err.
func (p *Progress) Stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil {
		p.stopped = err
	}
	for r := range p.waiters {
		p.wake(r)
	}
}

// Wait returns when revision has been applied, or with ctx's error, or with that of Stop.
func (p *Progress) Wait(ctx context.Context, revision int64) error {
	if p.revision.Load() >= revision {
		return nil
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	p.mu.Lock()
	if p.revision.Load() >= revision || p.stopped != nil {
		defer p.mu.Unlock()
		return p.result(revision)
	}
	w := p.waiters[revision]
	if w == nil {
		w = &waiter{done: make(chan struct{})}
		p.waiters[revision] = w
	}
	w.count++
	p.mu.Unlock()
	select {
	case <-w.done:
		if p.revision.Load() >= revision {
			return nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.result(revision)
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if w.count--; w.count == 0 && p.waiters[revision] == w {
			delete(p.waiters, revision)
		}
		return ctx.Err()
	}
}

func (p *Progress) result(revision int64) error {
	if p.revision.Load() >= revision {
		return nil
	}
	return p.stopped
}
