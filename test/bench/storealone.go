package main

import (
	"context"
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"
)

// storeAlone is the store of a cluster with nothing in front of it: no copies, no defaults, no validation, nobody who
// watches. It shows how much of a create is the store's: encoding, the guard on the namespace, and the feed of the
// cache.
type storeAlone struct {
	*store.Store
	guard store.Guard
}

func newStoreAlone(ctx context.Context, e *env) (*storeAlone, error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, store.Config{Connect: embedded.Connect(embedded.Config{Dir: dir}),
		Collections: apiserver.Collections()})
	if err != nil {
		return nil, err
	}
	key := store.Key{Kind: corev1.NamespaceKind, Name: "default"}
	ns := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: key.Name}}
	revision, err := s.Commit(ctx, store.Txn{Ops: []store.Op{{Key: key, Object: ns}}})
	if err != nil {
		return nil, err
	}
	return &storeAlone{s, store.Guard{Key: key, Condition: store.AtRevision, Revision: revision}}, nil
}

// create commits n complete pods in a round.
func (s *storeAlone) create(ctx context.Context, sample *corev1.Pod, clients, n int) func(int) (float64, error) {
	return func(round int) (float64, error) {
		prefix := fmt.Sprintf("s-%d-%d", clients, round)
		return drive(ctx, clients, n, func(ctx context.Context, _, i int) error {
			p := sample.Shallow()
			p.Metadata = p.Metadata.Shallow()
			p.Metadata.Name, p.Metadata.ResourceVersion = podName(prefix, i), ""
			key := store.Key{Kind: corev1.PodKind, Namespace: "default", Name: p.Metadata.Name}
			_, err := s.Commit(ctx, store.Txn{Ops: []store.Op{{Key: key, Object: p}}, Guards: []store.Guard{s.guard}})
			return err
		})
	}
}
