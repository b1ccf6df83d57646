package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// spec: OBJ-2
func contractConcurrentWriters(t *testing.T, s *Store) {
	key := podKey("default", "a")
	create(t, s, pod("default", "a"))
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				o, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
					p := object.Clone(live.(*corev1.Pod))
					p.Metadata.Generation++
					return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := s.Get(t.Context(), key, "")
				if err != nil || got.GetMetadata().GetGeneration() < o.GetMetadata().GetGeneration() {
					t.Errorf("a read does not see the write before it: %v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.Get(t.Context(), key, "")
	if err != nil || got.GetMetadata().GetGeneration() != writers*each {
		t.Errorf("generation %d, want %d (%v)", got.GetMetadata().GetGeneration(), writers*each, err)
	}
}

// spec: OBJ-2, OBJ-13
func contractTransaction(t *testing.T, s *Store) {
	create(t, s, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n"}})
	rev := create(t, s, pod("default", "a"))
	bound := pod("default", "a")
	bound.Spec.NodeName = "n"
	event := &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "Scheduled"}
	txn := Txn{
		Ops:    []Op{{Key: keyOf(bound), Object: bound, Expect: rev}, {Key: keyOf(event), Object: event}},
		Guards: []Guard{{Key: Key{corev1.NodeKind, "", "n"}, Condition: Present}},
	}
	at, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	if revOf(bound) != itoa(at) || revOf(event) != itoa(at) {
		t.Errorf("pod at %s, event at %s, transaction at %d", revOf(bound), revOf(event), at)
	}
	// One comparison fails: nothing happens.
	again := object.Clone(bound)
	again.Spec.NodeName = "m"
	txn.Ops[0] = Op{Key: keyOf(bound), Object: again, Expect: at}
	txn.Ops[1].Object = object.Clone(event)
	c := wantConflict(t, second(s.Commit(t.Context(), txn)))
	if c.Key != keyOf(event) || c.Guard || c.Live != object.Object(event) {
		t.Errorf("conflict %+v", c)
	}
	if now, _ := s.Revision(t.Context()); now != at {
		t.Errorf("a refused transaction made revision %d", now)
	}
}

// spec: OBJ-2
func contractMutateGuards(t *testing.T, s *Store) {
	ns := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "default"}}
	nsKey, key := keyOf(ns), podKey("default", "a")
	create(t, s, ns)
	// The namespace changes between the decision and the transaction: the decision is made again.
	calls := 0
	_, err := s.Mutate(t.Context(), key, func(object.Object) (*Txn, error) {
		seen, err := s.Get(t.Context(), nsKey, "0")
		if err != nil {
			return nil, err
		}
		if calls++; calls == 1 {
			relabel2(t, s, nsKey)
		}
		rev, _ := strconv.ParseInt(revOf(seen), 10, 64)
		return &Txn{
			Ops:    []Op{{Key: key, Object: pod("default", "a")}},
			Guards: []Guard{{Key: nsKey, Condition: AtRevision, Revision: rev}},
		}, nil
	})
	if err != nil || calls != 2 {
		t.Errorf("%v after %d decisions", err, calls)
	}
	// A guard on presence is the caller's to judge.
	remove(t, s, nsKey)
	_, err = s.Mutate(t.Context(), podKey("default", "b"), func(object.Object) (*Txn, error) {
		return &Txn{
			Ops:    []Op{{Key: podKey("default", "b"), Object: pod("default", "b")}},
			Guards: []Guard{{Key: nsKey, Condition: Present}},
		}, nil
	})
	if c := wantConflict(t, err); !c.Guard || c.Key != nsKey || c.Live != nil {
		t.Errorf("conflict %+v", c)
	}
	// A hopeless one ends.
	calls = 0
	_, err = s.Mutate(t.Context(), podKey("default", "b"), func(object.Object) (*Txn, error) {
		calls++
		return &Txn{
			Ops:    []Op{{Key: podKey("default", "b"), Object: pod("default", "b")}},
			Guards: []Guard{{Key: nsKey, Condition: AtRevision, Revision: 1}},
		}, nil
	})
	wantConflict(t, err)
	if calls != otherRaces+1 {
		t.Errorf("%d decisions", calls)
	}
}

func relabel2(t testing.TB, s *Store, key Key) {
	t.Helper()
	_, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
		o := object.Clone(live)
		o.GetMetadata().Labels = map[string]string{"v": "x"}
		return &Txn{Ops: []Op{{Key: key, Object: o}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func contractBadTransactions(t *testing.T, s *Store) {
	p := pod("default", "a")
	for name, txn := range map[string]Txn{
		"empty":          {},
		"two of a kind":  {Ops: []Op{{Key: podKey("default", "a"), Object: p}, {Key: podKey("default", "b"), Object: p}}},
		"no name":        {Ops: []Op{{Key: podKey("default", ""), Object: p}}},
		"no namespace":   {Ops: []Op{{Key: podKey("", "a"), Object: p}}},
		"namespace":      {Ops: []Op{{Key: Key{corev1.NodeKind, "default", "a"}}}},
		"slash":          {Ops: []Op{{Key: podKey("default", "a/b"), Object: p}}},
		"slash in space": {Ops: []Op{{Key: podKey("a/b", "a"), Object: p}}},
		"other kind":     {Ops: []Op{{Key: Key{corev1.NodeKind, "", "a"}, Object: p}}},
		"unknown kind":   {Ops: []Op{{Key: Key{corev1.ServiceAccountKind, "default", "a"}}}},
		"no kind":        {Ops: []Op{{Key: Key{nil, "default", "a"}}}},
		"guard of nobody": {Ops: []Op{{Key: podKey("default", "a"), Object: p}},
			Guards: []Guard{{Key: Key{nil, "", "x"}, Condition: Present}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Commit(t.Context(), txn)
			if err == nil || errors.As(err, new(*ConflictError)) {
				t.Errorf("got %v", err)
			}
		})
	}
	if now, _ := s.List(t.Context(), corev1.PodKind, ListOptions{}); len(now.Objects) != 0 {
		t.Error("something was stored")
	}
}

func contractTooLarge(t *testing.T, s *Store) {
	for _, size := range []int{1500 * 1024, 1530 * 1024, 4 << 20} {
		p := pod("default", fmt.Sprint("p", size))
		p.Metadata.Annotations = map[string]string{"a": strings.Repeat("x", size)}
		_, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
		if size == 1500*1024 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		wantReason(t, err, apierrors.RequestEntityTooLarge)
	}
}
