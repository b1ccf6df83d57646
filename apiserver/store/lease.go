package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"monoplane.dev/apiserver/store/etcd"
)

// leaseSpan is how long one lease is given to new objects. Leases live that much longer than the objects ask
// for, so that no object dies early, and one lease serves all objects of a minute (OBJ-13).
const leaseSpan = time.Minute

// leases are those that are being given out, by time to live.
type leases struct {
	mu   sync.Mutex
	open map[time.Duration]openLease
}

type openLease struct {
	id    int64
	since time.Time
}

// leaseFor returns the lease for a put, 0 for none.
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
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	now := time.Now()
	if l, ok := s.leases.open[ttl]; ok && now.Sub(l.since) < leaseSpan {
		return l.id, nil
	}
	id, err := s.client.Grant(ctx, int64((ttl+leaseSpan)/time.Second))
	if errors.Is(err, etcd.ErrNoSpace) {
		if err = s.relieve(ctx); err == nil {
			id, err = s.client.Grant(ctx, int64((ttl+leaseSpan)/time.Second))
		}
	}
	if err != nil {
		return 0, s.writeError(fmt.Errorf("lease: %w", err))
	}
	for old, l := range s.leases.open {
		if now.Sub(l.since) >= leaseSpan {
			delete(s.leases.open, old)
		}
	}
	if s.leases.open == nil {
		s.leases.open = map[time.Duration]openLease{}
	}
	s.leases.open[ttl] = openLease{id: id, since: now}
	return id, nil
}

// dropLeases forgets all open leases, after one of them was found missing.
func (s *Store) dropLeases() {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	clear(s.leases.open)
}
