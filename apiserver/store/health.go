package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/store/etcd"
)

const (
	// probeLimit is how long etcd may take to answer before it counts as too slow.
	probeLimit = 2 * time.Second
	// goodFor and badFor are how long an answer is believed, however many ask.
	goodFor = time.Second
	badFor  = 250 * time.Millisecond
)

// Live returns nil when etcd answers reads, otherwise the reason why not. The store itself may serve what it has.
func (s *Store) Live(ctx context.Context) error {
	if err := s.client.Err(); err != nil {
		return err
	}
	return s.reads.ask(ctx, s, func(ctx context.Context) error {
		_, err := s.head(ctx)
		return s.readError(err)
	})
}

// Ready returns nil when the store serves reads and a write would pass, otherwise the reason why not.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.client.Err(); err != nil {
		return err
	}
	if err := s.behind.Load(); err != nil {
		return fmt.Errorf("the caches are not up to date: %w", *err)
	}
	// The comparison never holds: etcd takes the transaction through its log and looks whether there is room for it, but
	// stores nothing.
	return s.writes.ask(ctx, s, func(ctx context.Context) error {
		_, err := s.run(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{compareRevision([]byte(versionKey), etcdserverpb.Compare_EQUAL, 0)},
			Success: []*etcdserverpb.RequestOp{putOp([]byte(versionKey), nil, 0)},
		})
		return s.writeError(err)
	})
}

// probe finds out whether something works, once for all who want to know at the time.
type probe struct {
	// seen is when it worked last, in nanoseconds of the Unix epoch.
	seen atomic.Int64

	mu  sync.Mutex
	now *answer
}

// answer is that of one probe. err and at are there when done is closed.
type answer struct {
	done chan struct{}
	err  error
	at   time.Time
}

// passed notes that it works.
func (p *probe) passed() { p.seen.Store(time.Now().UnixNano()) }

// ask returns what a probe by f says, or said a short time ago.
func (p *probe) ask(ctx context.Context, s *Store, f func(context.Context) error) error {
	if age := time.Since(time.Unix(0, p.seen.Load())); age >= 0 && age < goodFor {
		return nil
	}
	a := p.answer(s, f)
	if a == nil {
		return etcd.ErrClosed
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer returns one that is new, or on its way.
func (p *probe) answer(s *Store, f func(context.Context) error) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.now; a != nil {
		select {
		case <-a.done:
			if time.Since(a.at) < badFor { // good ones have been seen
				return a
			}
		default:
			return a
		}
	}
	a := &answer{done: make(chan struct{})}
	started := s.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, probeLimit)
		defer cancel()
		if a.err = f(ctx); a.err == nil {
			p.passed()
		} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			a.err = fmt.Errorf("etcd has not answered for %v: is it down, or its disk slow? %w", probeLimit, a.err)
		}
		a.at = time.Now()
		close(a.done)
	})
	if !started {
		return nil
	}
	p.now = a
	return a
}
