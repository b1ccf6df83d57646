package store

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/object"
)

// Whoever is told of a write first gives the object its revision, and nobody changes it afterwards.
func TestWriterAndFeedInAnyOrder(t *testing.T) {
	const writer, revision = 7, 42
	for name, steps := range map[string][]string{
		"writer first": {"settle", "take"},
		"feed first":   {"take", "settle"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, testConfig(t.TempDir()))
			p := pod("default", "a")
			s.pending[writer] = &pendingWrite{object: p}
			for _, step := range steps {
				switch step {
				case "settle":
					s.settle(writer, revision)
				case "take":
					if got := s.take(writer, revision); got != object.Object(p) {
						t.Errorf("took %v", got)
					}
				}
				if p.Metadata.ResourceVersion != "42" {
					t.Errorf("after %s: resourceVersion %q", step, p.Metadata.ResourceVersion)
				}
			}
			if s.take(writer, revision) != nil || len(s.pending) != 0 {
				t.Error("the write is still pending")
			}
		})
	}
}

// The race detector looks on.
func TestReadersAndWritersShareObjects(t *testing.T) {
	s := open(t, testConfig(t.TempDir()))
	w := watch(t, s, WatchOptions{})
	const n = 300
	var all sync.WaitGroup
	all.Go(func() {
		for _, e := range collect(t, w, n) {
			if revOf(e.Object) == "" {
				t.Error("an object without a revision was delivered")
			}
		}
	})
	for i := range n {
		p := pod("default", itoa(int64(i)))
		if rev := create(t, s, p); p.Metadata.ResourceVersion != itoa(rev) {
			t.Fatalf("resourceVersion %s, want %d", p.Metadata.ResourceVersion, rev)
		}
	}
	all.Wait()
	if len(s.pending) != 0 {
		t.Errorf("%d writes are still pending", len(s.pending))
	}
}

// When the feed begins anew, it will not deliver what was written before.
func TestPendingWritesAreForgotten(t *testing.T) {
	s := open(t, testConfig(t.TempDir()))
	s.pending[1] = &pendingWrite{object: pod("default", "a")}
	s.pending[2] = &pendingWrite{object: pod("default", "b")}
	s.pending[3] = &pendingWrite{object: pod("default", "c")}
	s.settle(1, 1<<40)
	s.settle(2, 1<<40+2)
	s.forget(1<<40 + 1)
	if s.pending[1] != nil || s.pending[2] == nil || s.pending[3] == nil {
		t.Errorf("pending: %v", s.pending)
	}
	s.settle(3, 1) // the feed is far beyond
	if s.pending[3] != nil {
		t.Error("a write that the feed has passed is still pending")
	}
}

// meddler is an etcd in which something happens after each refused transaction.
type meddler struct {
	etcd.Client
	after func()
}

func (m *meddler) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := m.Client.Txn(ctx, req)
	if err == nil && !resp.Succeeded && m.after != nil {
		f := m.after
		m.after = nil
		f()
	}
	return resp, err
}

// wrap puts something between the store and its etcd.
func wrap(t *testing.T, s *Store, in func(etcd.Client) etcd.Client) {
	t.Helper()
	// When this can be read, the feed has its watch and needs the client no more.
	create(t, s, &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "first"}})
	if _, err := s.Revision(t.Context()); err != nil {
		t.Fatal(err)
	}
	real := s.client
	s.client = in(real)
	t.Cleanup(func() { s.client = real })
}

// spec: OBJ-2
func TestWhatWasInTheWayHasGone(t *testing.T) {
	s := open(t, testConfig(t.TempDir()))
	create(t, s, pod("default", "a"))
	m := &meddler{after: func() { remove(t, s, podKey("default", "a")) }}
	wrap(t, s, func(real etcd.Client) etcd.Client { m.Client = real; return m })
	again := pod("default", "a")
	again.Spec = &corev1.PodSpec{NodeName: "n"}
	if _, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", "a"), Object: again}}}); err != nil {
		t.Fatal(err)
	}
	o, err := s.Get(t.Context(), podKey("default", "a"), "")
	if err != nil || o != object.Object(again) {
		t.Errorf("%v, %v", o, err)
	}
}

// gate is an etcd whose transactions wait until it opens.
type gate struct {
	etcd.Client
	open    chan struct{}
	entered chan struct{}
}

func (g *gate) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	g.entered <- struct{}{}
	<-g.open
	return g.Client.Txn(ctx, req)
}

// However many writers there are, etcd gets no more than it takes without falling behind. The others wait as long as
// their contexts allow.
func TestWritersWaitForEachOther(t *testing.T) {
	s := open(t, testConfig(t.TempDir()))
	g := &gate{open: make(chan struct{}), entered: make(chan struct{}, 2*maxTxns)}
	wrap(t, s, func(real etcd.Client) etcd.Client { g.Client = real; return g })
	var all sync.WaitGroup
	for i := range maxTxns {
		all.Go(func() {
			p := pod("default", itoa(int64(i)))
			if _, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}}); err != nil {
				t.Error(err)
			}
		})
	}
	for range maxTxns {
		<-g.entered
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := make(chan error)
	go func() {
		_, err := s.Commit(ctx, Txn{Ops: []Op{{Key: podKey("default", "late"), Object: pod("default", "late")}}})
		late <- err
	}()
	cancel()
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Errorf("the writer that waited: %v", err)
	}
	if len(g.entered) > 0 {
		t.Error("one more transaction was sent")
	}
	close(g.open)
	all.Wait()
	if n := len(list(t, s, ListOptions{}).Objects); n != maxTxns {
		t.Errorf("%d objects, want %d", n, maxTxns)
	}
}
