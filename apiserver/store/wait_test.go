package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
)

// slowEtcd answers some calls only when it is told to, or when the caller gives up.
type slowEtcd struct {
	etcd.Client
	mu       sync.Mutex
	gate     chan struct{} // nil: at once
	noSpace  bool          // until room is made
	granted  int
	relieved int
	shared   bool
	// freed is what Relieve returns.
	freed error
}

func (e *slowEtcd) Shared() bool { return e.shared }

// hold lets calls wait until the returned function is called.
func (e *slowEtcd) hold() (release func()) {
	gate := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gate = gate
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gate = nil
		close(gate)
	})
}

func (e *slowEtcd) wait(ctx context.Context, count *int) error {
	e.mu.Lock()
	gate := e.gate
	if count != nil {
		*count++
	}
	e.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *slowEtcd) Grant(ctx context.Context, ttl int64) (int64, error) {
	if err := e.wait(ctx, &e.granted); err != nil {
		return 0, err
	}
	return e.Client.Grant(ctx, ttl)
}

func (e *slowEtcd) Relieve(ctx context.Context, revision int64) error {
	if err := e.wait(ctx, &e.relieved); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noSpace = e.shared || e.freed != nil // others fill it again at once
	return e.freed
}

func (e *slowEtcd) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	e.mu.Lock()
	full := e.noSpace
	e.mu.Unlock()
	if full {
		return nil, etcd.ErrNoSpace
	}
	return e.Client.Txn(ctx, req)
}

// openSlow opens a store over an etcd that can be held up, in a synctest bubble.
func openSlow(t *testing.T, dir string) (*Store, *slowEtcd) {
	slow := &slowEtcd{}
	cfg := testConfig(dir)
	cfg.wrap = func(c etcd.Client) etcd.Client {
		slow.Client = c
		return slow
	}
	return open(t, cfg), slow
}

func writeEvent(ctx context.Context, s *Store, name string) error {
	e := &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}}
	_, err := s.Commit(ctx, Txn{Ops: []Op{{Key: keyOf(e), Object: e}}})
	return err
}

// While a lease is being made, whoever needs it waits for it as long as he likes, others do not; one is made for all,
// and none is lost because the first who asked has given up.
func TestSlowLease(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, slow := openSlow(t, dir)
		release := slow.hold()
		defer release()
		const n = 10
		results := make(chan error, n)
		for i := range n {
			go func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 0 {
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
				} else if i%2 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				results <- writeEvent(ctx, s, fmt.Sprint("e", i))
			}()
			synctest.Wait() // the first is the first
		}
		if _, err := s.Commit(t.Context(),
			Txn{Ops: []Op{{Key: podKey("default", "p"), Object: pod("default", "p")}}}); err != nil {
			t.Error(err) // it needs no lease
		}
		for range n / 2 {
			if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a writer that gave up: %v", err)
			}
		}
		release()
		for range n - n/2 {
			if err := <-results; err != nil {
				t.Errorf("a writer that waited: %v", err)
			}
		}
		if slow.granted != 1 {
			t.Errorf("%d leases were made", slow.granted)
		}
		// A lease that cannot be made is asked for in vain once by those who wait, and again by those who come later.
		s.dropLeases()
		release = slow.hold()
		defer release()
		err := writeEvent(t.Context(), s, "late")
		wantReason(t, err, apierrors.Timeout)
		release()
		if err := writeEvent(t.Context(), s, "late"); err != nil {
			t.Error(err)
		}
	})
}

// While room is made in a full database nobody waits longer than he likes, and it is made once for all.
func TestSlowRelief(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, slow := openSlow(t, dir)
		slow.mu.Lock()
		slow.noSpace = true
		slow.mu.Unlock()
		release := slow.hold()
		defer release()
		const n = 6
		results := make(chan error, n)
		for i := range n {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%2*60)*time.Second)
			defer cancel()
			go func() {
				p := pod("default", fmt.Sprint("p", i))
				_, err := s.Commit(ctx, Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
				results <- err
			}()
		}
		for range n / 2 {
			if err := <-results; err == nil {
				t.Error("written without room")
			}
		}
		release()
		for range n / 2 {
			if err := <-results; err != nil {
				t.Errorf("a writer that waited: %v", err)
			}
		}
		if slow.relieved != 1 {
			t.Errorf("room was made %d times", slow.relieved)
		}
	})
}

// However many writes a full database refuses, room is made once, then after pauses that grow; after a deletion it is
// tried again soon. An etcd that others use stands still no more often when there is something to free.
func TestReliefPauses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		shared bool
		freed  error
		want   string
	}{
		{"nothing to free", false, etcd.ErrNothingFreed, "[0s 1m0s 3m0s 7m0s 15m0s 25m0s]"},
		{"nothing to free elsewhere", true, etcd.ErrNothingFreed, "[0s 1m0s 3m0s 7m0s 15m0s]"},
		{"others are fast", true, nil, "[0s 1m0s 3m0s 7m0s 15m0s]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, slow := openSlow(t, dir)
				create(t, s, pod("default", "old"))
				slow.shared, slow.freed, slow.noSpace = tc.shared, tc.freed, true
				p := pod("default", "p")
				refused := func() {
					t.Helper()
					_, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
					wantReason(t, err, apierrors.ServiceUnavailable)
				}
				var at []time.Duration
				for begin := time.Now(); time.Since(begin) < 30*time.Minute; time.Sleep(time.Second) { // in the bubble
					was := slow.relieved
					if refused(); slow.relieved > was {
						at = append(at, time.Since(begin).Round(time.Minute))
					}
				}
				if fmt.Sprint(at) != tc.want {
					t.Errorf("room was made at %v, want %s", at, tc.want)
				}
				if tc.shared {
					return
				}
				slow.noSpace = false // deletions pass
				remove(t, s, podKey("default", "old"))
				slow.noSpace = true
				was := slow.relieved
				if refused(); slow.relieved != was+1 {
					t.Errorf("room was made %d times after a deletion", slow.relieved-was)
				}
				if refused(); slow.relieved != was+1 {
					t.Errorf("room was made %d times after a deletion", slow.relieved-was)
				}
			})
		})
	}
}

// No wait in the store is without an end, whatever the caller allows.
func TestWaitsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, testConfig(dir))
		began := time.Now()
		wantReason(t, s.reach(context.Background(), 1_000_000), apierrors.Timeout)
		for range maxTxns {
			s.slots <- struct{}{}
		}
		_, err := s.Commit(context.Background(), Txn{Ops: []Op{{Key: podKey("default", "p"), Object: pod("default", "p")}}})
		wantReason(t, err, apierrors.TooManyRequests)
		for range maxTxns {
			<-s.slots
		}
		if took := time.Since(began); took != 2*waitLimit {
			t.Errorf("both took %v, want %v", took, 2*waitLimit)
		}
	})
}
