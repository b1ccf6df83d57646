package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
)

func start(t testing.TB, cfg Config) *Embedded {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func put(ctx context.Context, e Client, k string, v []byte, lease int64) (int64, error) {
	r, err := e.Txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: []byte(k), Target: etcdserverpb.Compare_MOD, TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 0}}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte(k), Value: v, Lease: lease}}}}})
	return r.GetHeader().GetRevision(), err
}

func TestSmoke(t *testing.T) {
	defer goleak.VerifyNone(t)
	t0 := time.Now()
	e := start(t, Config{})
	t.Log("start", time.Since(t0))
	for i := range 5 {
		rev, err := put(t.Context(), e, fmt.Sprint("/monoplane/k", i), make([]byte, 100), 0)
		t.Log(rev, err)
	}
	t0 = time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	t.Log("close", time.Since(t0))
}

func TestBubble(t *testing.T) {
	dir := t.TempDir()
	t0 := time.Now()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, Config{Dir: dir})
		id, err := e.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := e.Watch(t.Context(), "/monoplane/", 1)
		if _, err := put(t.Context(), e, "/monoplane/x", nil, id); err != nil {
			t.Fatal(err)
		}
		n := time.Now()
		for range 2 {
			b, err := w.Recv(t.Context())
			t.Log(b, err, time.Since(n))
		}
		w.Close()
		e.Close()
	})
	t.Log(time.Since(t0))
}

func BenchmarkTxn(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := start(b, Config{})
			defer e.Close()
			v := make([]byte, 2000)
			b.ResetTimer()
			ch := make(chan int)
			done := make(chan struct{})
			for range n {
				go func() {
					for i := range ch {
						if _, err := put(b.Context(), e, fmt.Sprint("/monoplane/core/pods/default/k", i), v, 0); err != nil {
							b.Error(err)
						}
					}
					done <- struct{}{}
				}()
			}
			for i := range b.N {
				ch <- i
			}
			close(ch)
			for range n {
				<-done
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
		})
	}
}
