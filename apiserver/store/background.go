package store

import (
	"context"
	"sync"
	"time"
)

// waitLimit ends waits for the store itself: for the caches to arrive at a revision, and for a transaction's turn. It
// is far more than either takes while etcd works, and callers may have set less.
const waitLimit = time.Minute

// running is what goes on in the background until the store is closed.
type running struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	done    sync.WaitGroup
}

// background runs f, whose context ends when the store is closed. It returns false, and does nothing, after that.
func (s *Store) background(f func(context.Context)) bool {
	r := &s.running
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	r.done.Go(func() { f(r.ctx) })
	return true
}

// stop ends what runs and waits for it.
func (r *running) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
}
