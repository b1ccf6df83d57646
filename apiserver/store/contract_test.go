package store

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// contract is what every store guarantees, on whatever etcd it runs.
var contract = map[string]func(*testing.T, *Store){
	"create and read":      contractCreate,
	"compare and swap":     contractCAS,
	"guards":               contractGuards,
	"turns":                contractTurns,
	"held turns":           contractHeldTurns,
	"unchanged":            contractUnchanged,
	"mutate":               contractMutate,
	"mutate with guards":   contractMutateGuards,
	"transaction":          contractTransaction,
	"concurrent writers":   contractConcurrentWriters,
	"bad transactions":     contractBadTransactions,
	"too large":            contractTooLarge,
	"list":                 contractList,
	"list with selectors":  contractSelectors,
	"list at revisions":    contractListRevisions,
	"pages while writing":  contractPagesWhileWriting,
	"watch":                contractWatch,
	"initial events":       contractInitialEvents,
	"last bookmark":        contractLastBookmark,
	"selector transitions": contractSelectorTransitions,
	"indexed watch":        contractIndexedWatch,
	"many deletions":       contractManyDeletions,
	"too many objects":     contractTooManyObjects,
}

func TestContractEmbedded(t *testing.T) {
	for name, f := range contract {
		t.Run(name, func(t *testing.T) { f(t, open(t, testConfig(t.TempDir()))) })
	}
}

// spec: OBJ-1, OBJ-2
func contractCreate(t *testing.T, s *Store) {
	p := pod("default", "a")
	rev := create(t, s, p)
	got, err := s.Get(t.Context(), podKey("default", "a"), "")
	if err != nil {
		t.Fatal(err)
	}
	if got != object.Object(p) {
		t.Error("the object that was written is not shared")
	}
	if want, have := rev, got.GetMetadata().GetResourceVersion(); have != itoa(want) {
		t.Errorf("resourceVersion %s, want %d", have, want)
	}
	_, err = s.Get(t.Context(), podKey("default", "b"), "")
	wantReason(t, err, apierrors.NotFound)
	_, err = s.Get(t.Context(), podKey("default", "a"), itoa(rev+1000))
	wantReason(t, err, apierrors.Timeout)
	for _, bad := range []string{"x", "-1", "01", "1.5", "99999999999999999999"} {
		_, err = s.Get(t.Context(), podKey("default", "a"), bad)
		wantReason(t, err, apierrors.BadRequest)
	}
}

// spec: OBJ-2
func contractCAS(t *testing.T, s *Store) {
	rev := create(t, s, pod("default", "a"))
	c := wantConflict(t, second(s.Commit(t.Context(),
		Txn{Ops: []Op{{Key: podKey("default", "a"), Object: pod("default", "a")}}})))
	if c.Live == nil || c.Live.GetMetadata().GetResourceVersion() != itoa(rev) || c.Guard {
		t.Errorf("conflict %+v", c)
	}
	c = wantConflict(t, second(s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", "b"), Expect: 7}}})))
	if c.Live != nil {
		t.Errorf("conflict with an absent key %+v", c)
	}
	if _, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", "a"), Expect: rev}}}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), podKey("default", "a"), "")
	wantReason(t, err, apierrors.NotFound)
}

// sameNamespace compares by content: when the cache does not have an object yet, the store answers with another copy.
func sameNamespace(o object.Object, want *corev1.Namespace) bool {
	got, ok := o.(*corev1.Namespace)
	return ok && proto.Equal(got, want)
}

// spec: DEL-8, OBJ-14
func contractGuards(t *testing.T, s *Store) {
	ns := &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "default"}}
	nsKey := keyOf(ns)
	try := func(g Guard) error {
		return second(s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", "a"), Object: pod("default", "a")}},
			Guards: []Guard{g}}))
	}
	if c := wantConflict(t, try(Guard{Key: nsKey, Condition: Present})); !c.Guard || c.Live != nil || c.Key != nsKey {
		t.Errorf("conflict %+v", c)
	}
	rev := create(t, s, ns)
	if c := wantConflict(t, try(Guard{Key: nsKey, Condition: Absent})); !c.Guard || !sameNamespace(c.Live, ns) ||
		revOf(c.Live) != itoa(rev) {
		t.Errorf("conflict %+v", c)
	}
	wantConflict(t, try(Guard{Key: nsKey, Condition: AtRevision, Revision: rev + 1}))
	if err := try(Guard{Key: nsKey, Condition: AtRevision, Revision: rev}); err != nil {
		t.Fatal(err)
	}
	if err := try(Guard{Key: nsKey}); err == nil || errors.As(err, new(*ConflictError)) {
		t.Errorf("a guard without condition: %v", err)
	}
}

// spec: OBJ-2
func contractUnchanged(t *testing.T, s *Store) {
	rev := create(t, s, pod("default", "a"))
	same := pod("default", "a")
	got, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", "a"), Object: same, Expect: rev}}})
	if err != nil || got != rev || same.Metadata.ResourceVersion != itoa(rev) {
		t.Errorf("revision %d, %v; want %d", got, err, rev)
	}
	if now, _ := s.Revision(t.Context()); now != rev {
		t.Errorf("the store is at revision %d, was at %d", now, rev)
	}
	wantConflict(t, second(s.Commit(t.Context(),
		Txn{Ops: []Op{{Key: podKey("default", "a"), Object: pod("default", "a"), Expect: rev}},
			Guards: []Guard{{Key: Key{corev1.NodeKind, "", "n"}, Condition: Present}}})))
}

// spec: OBJ-2
func contractMutate(t *testing.T, s *Store) {
	key := podKey("default", "a")
	o, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
		if live != nil {
			t.Error("an object that is not there")
		}
		return nil, nil
	})
	if o != nil || err != nil {
		t.Errorf("%v, %v", o, err)
	}
	create(t, s, pod("default", "a"))
	races := 0
	o, err = s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
		if races++; races == 1 {
			relabel(t, s, key, "other")
		}
		p := object.Clone(live.(*corev1.Pod))
		p.Spec.NodeName = "n"
		return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
	})
	if err != nil || races != 2 {
		t.Fatal(err, races)
	}
	if p := o.(*corev1.Pod); p.Spec.NodeName != "n" || p.Metadata.Labels["v"] != "other" {
		t.Errorf("a lost update: %v", p)
	}
	remove(t, s, key)
	boom := errors.New("boom")
	_, err = s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) { return nil, boom })
	if !errors.Is(err, boom) {
		t.Error(err)
	}
}
