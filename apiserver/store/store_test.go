package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// resources are what the tests store.
func resources() []Collection {
	return []Collection{
		{
			Kind: corev1.PodKind,
			Field: func(o object.Object, name string) (string, bool) {
				p := o.(*corev1.Pod)
				switch name {
				case "spec.nodeName":
					return p.GetSpec().GetNodeName(), true
				case "status.phase":
					return p.GetStatus().GetPhase(), true
				}
				return "", false
			},
			Indexes: []string{"spec.nodeName"},
		},
		{Kind: corev1.NodeKind},
		{Kind: corev1.NamespaceKind},
		{Kind: corev1.ConfigMapKind},
		{Kind: corev1.EventKind, TTL: func(object.Object) time.Duration { return time.Hour }},
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func testConfig(dir string) Config {
	return Config{
		Connect:     embedded.Connect(embedded.Config{Dir: dir, UnsafeNoFsync: true}),
		Collections: resources(), Logger: quiet(), OnMutation: func(err error) { panic(err) },
		Patience: 10 * time.Millisecond,
	}
}

// fsyncConfig is testConfig with what survives a crash of the machine.
func fsyncConfig(dir string) Config {
	cfg := testConfig(dir)
	cfg.Connect = embedded.Connect(embedded.Config{Dir: dir})
	return cfg
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: &corev1.PodSpec{}}
}

func podKey(namespace, name string) Key { return Key{corev1.PodKind, namespace, name} }

func create(t testing.TB, s *Store, o object.Object) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(o), Object: o}}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func keyOf(o object.Object) Key {
	m := o.GetMetadata()
	return Key{o.ObjectKind(), m.GetNamespace(), m.GetName()}
}

func remove(t testing.TB, s *Store, key Key) {
	t.Helper()
	_, err := s.Mutate(t.Context(), key, func(object.Object) (*Txn, error) {
		return &Txn{Ops: []Op{{Key: key}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// relabel sets the pod's label "v".
func relabel(t testing.TB, s *Store, key Key, value string) object.Object {
	t.Helper()
	o, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
		p := object.Clone(live.(*corev1.Pod))
		p.Metadata.Labels = map[string]string{"v": value}
		return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantReason(t testing.TB, err error, r apierrors.Reason) {
	t.Helper()
	if !apierrors.Is(err, r) {
		t.Fatalf("got error %v, want reason %s", err, r)
	}
}

func wantConflict(t testing.TB, err error) *ConflictError {
	t.Helper()
	var c *ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("got error %v, want a conflict", err)
	}
	return c
}

// collect reads events until there are n, or the deadline.
func collect(t testing.TB, w *Watcher, n int) []object.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []object.Event
	for len(out) < n {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(out), n, err)
		}
		out = append(out, events...)
	}
	return out
}

func describe(events []object.Event) []string {
	var out []string
	for _, e := range events {
		m := e.Object.GetMetadata()
		out = append(out, fmt.Sprintf("%s %s@%s", e.Type, objectKey(m.GetNamespace(), m.GetName()), m.GetResourceVersion()))
	}
	return out
}
