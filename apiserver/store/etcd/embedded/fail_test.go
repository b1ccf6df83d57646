package embedded

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/store/etcd"
)

// A server that fails while it holds the locks of its storage keeps nobody waiting.
// spec: DEL-13
func TestFailsWithLocksHeld(t *testing.T) {
	e := start(t, Config{Dir: t.TempDir(), UnsafeNoFsync: true})
	rev, err := put(t.Context(), e, "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.Watch(t.Context(), "k", rev+1)
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context) error {
		_, err := e.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
		return err
	}
	watch := func(ctx context.Context) error {
		w, err := e.Watch(ctx, "k", rev)
		if err == nil {
			err = w.Close()
		}
		return err
	}
	read := e.srv.Backend().ReadTx()
	written := make(chan error)
	// write waits for the lock and holds others meanwhile, as if its goroutine had ended.
	write := func() {
		read.RLock()
		go func() {
			_, err := put(context.Background(), e, "k", nil)
			written <- err
		}()
	}
	for write(); !waits(t, get) || !waits(t, watch); {
		if !waits(t, get) {
			continue
		}
		// Something else was in between, a commit of the server's own for example.
		read.RUnlock()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		write()
	}
	calls := map[string]func(context.Context) error{
		"range": get,
		"read-only transaction": func(ctx context.Context) error {
			_, err := e.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{
				Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: []byte("k")}},
			}}})
			return err
		},
		"watch":            watch,
		"snapshot":         func(ctx context.Context) error { return e.Snapshot(ctx, io.Discard) },
		"relieve":          func(ctx context.Context) error { return e.Relieve(ctx, rev) },
		"progress":         func(ctx context.Context) error { w.Progress(ctx); return e.Err() },
		"close of a watch": func(context.Context) error { return errors.Join(w.Close(), e.Err()) },
		"transaction":      func(context.Context) error { return <-written },
	}
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer)
	for name, f := range calls {
		go func() { answers <- answer{name, f(context.Background())} }()
	}
	broken := errors.New("the disk is gone")
	e.fail.set(broken)
	for len(calls) > 0 {
		select {
		case a := <-answers:
			delete(calls, a.name)
			if !errors.Is(a.err, broken) {
				t.Errorf("%s: %v", a.name, a.err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("still waiting: %v", calls)
		}
	}
	read.RUnlock()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	<-e.srv.StopNotify()
	e.using.Lock() // until what was abandoned has ended
	defer e.using.Unlock()
}

// A disk that does not answer keeps nobody waiting who has set no end: calls are given up, and say that their outcome
// is unknown.
func TestCallsEnd(t *testing.T) {
	e := start(t, Config{Dir: t.TempDir(), UnsafeNoFsync: true})
	if _, err := put(t.Context(), e, "k", nil); err != nil {
		t.Fatal(err)
	}
	e.limit = 200 * time.Millisecond
	read := e.srv.Backend().ReadTx()
	read.RLock() // as a write to the disk holds the storage's locks
	for name, f := range map[string]func() error{
		"transaction": func() error { _, err := put(context.Background(), e, "k", nil); return err },
		"range": func() error {
			_, err := e.Range(context.Background(), &etcdserverpb.RangeRequest{Key: []byte("k")})
			return err
		},
		"lease":   func() error { _, err := e.Grant(context.Background(), 60); return err },
		"compact": func() error { return e.Compact(context.Background(), 1) },
		"watch":   func() error { _, err := e.Watch(context.Background(), "k", 1); return err },
	} {
		// Calls that the lock does not hold up may be answered; a second one is behind the write.
		if err := f(); err != nil && !errors.Is(err, etcd.ErrTimeout) && !errors.Is(err, etcd.ErrCompacted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := put(context.Background(), e, "k", nil); !errors.Is(err, etcd.ErrTimeout) {
		t.Errorf("a transaction ends with %v", err)
	}
	read.RUnlock()
	e.limit = etcd.CallLimit
	if _, err := put(t.Context(), e, "k", nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// waits tells whether f waits for its context.
func waits(t *testing.T, f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return errors.Is(f(ctx), context.DeadlineExceeded)
}
