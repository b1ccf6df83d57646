package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"monoplane.dev/apiserver/store/etcd"
)

const (
	// leaseSpan is how long one lease is given to new objects. Leases live that much longer than the objects ask
	// for, so that no object dies early, and one lease serves all objects of a minute (OBJ-13).
	leaseSpan = time.Minute
	// grantTimeout bounds making a lease, room for it included.
	grantTimeout = 30 * time.Second
)

// leases are those that are being given out, by time to live.
type leases struct {
	// mu is never held while etcd is asked.
	mu   sync.Mutex
	open map[time.Duration]*openLease
}

// openLease is a lease, or one that is being made.
type openLease struct {
	since time.Time
	// done is closed when id and err are known.
	done chan struct{}
	id   int64
	err  error
}

// failed says whether the lease could not be made.
func (l *openLease) failed() bool {
	select {
	case <-l.done:
		return l.err != nil
	default:
		return false
	}
}

// leaseFor returns the lease for a put, 0 for none. Of several who need a new one, one makes it.
func (s *Store) leaseFor(ctx context.Context, st *step) (int64, error) {
	if st.kind.res.TTL == nil {
		return 0, nil
	}
	ttl := st.kind.res.TTL(st.op.Object)
	if ttl <= 0 {
		return 0, nil
	}
	// Few different times make few leases.
	ttl = (ttl + leaseSpan - 1).Truncate(leaseSpan)
	l, err := s.openLease(ttl)
	if err != nil {
		return 0, err
	}
	select {
	case <-l.done:
		if l.err != nil {
			return 0, s.writeError(l.err)
		}
		return l.id, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Store) openLease(ttl time.Duration) (*openLease, error) {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	now := time.Now()
	if l := s.leases.open[ttl]; l != nil && now.Sub(l.since) < leaseSpan && !l.failed() {
		return l, nil
	}
	for old, l := range s.leases.open {
		if now.Sub(l.since) >= leaseSpan {
			delete(s.leases.open, old)
		}
	}
	l := &openLease{since: now, done: make(chan struct{})}
	// It is made for all who wait, and goes on when the first of them gives up.
	if !s.background(func(ctx context.Context) { s.grant(ctx, l, ttl+leaseSpan) }) {
		return nil, s.writeError(etcd.ErrClosed)
	}
	if s.leases.open == nil {
		s.leases.open = map[time.Duration]*openLease{}
	}
	s.leases.open[ttl] = l
	return l, nil
}

// grant makes the lease.
func (s *Store) grant(ctx context.Context, l *openLease, ttl time.Duration) {
	defer close(l.done)
	ctx, cancel := context.WithTimeoutCause(ctx, grantTimeout, etcd.ErrTimeout)
	defer cancel()
	l.id, l.err = s.client.Grant(ctx, int64(ttl/time.Second))
	if errors.Is(l.err, etcd.ErrNoSpace) {
		if l.err = s.relieve(ctx); l.err == nil {
			l.id, l.err = s.client.Grant(ctx, int64(ttl/time.Second))
		}
	}
	if l.err != nil && ctx.Err() != nil {
		l.err = context.Cause(ctx) // for the others it is no cancellation of theirs
	}
	if l.err != nil {
		l.err = fmt.Errorf("lease: %w", l.err)
	}
}

// dropLeases forgets all open leases, after one of them was found missing.
func (s *Store) dropLeases() {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	clear(s.leases.open)
}
