package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

func take(t testing.TB, s *Store, name string) {
	t.Helper()
	g, err := s.Turn(t.Context(), name)
	if err == nil {
		_, err = s.Commit(t.Context(), Txn{Guards: []Guard{g}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spec: OBJ-2
func contractTurns(t *testing.T, s *Store) {
	create := func(name string, g Guard) error {
		return second(s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", name), Object: pod("default", name)}},
			Guards: []Guard{g}}))
	}
	turn := func(name string) Guard {
		t.Helper()
		g, err := s.Turn(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, late, other := turn("pods/a"), turn("pods/a"), turn("pods/b")
	if err := create("a", first); err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]Guard{"once more": first, "since": late} {
		if c := wantConflict(t, create("b", g)); !c.Guard || c.Live != nil ||
			c.Error() != "turn pods/a has been taken by another write" {
			t.Errorf("%s: conflict %+v: %v", name, c, c)
		}
	}
	if err := create("b", other); err != nil {
		t.Errorf("the turns of two names are one: %v", err)
	}
	next := turn("pods/a")
	if now := turn("pods/a"); next.Revision == 0 || now != next {
		t.Errorf("to look at a turn takes it: %+v, then %+v", next, now)
	}
	// A transaction that fails takes no turn.
	wantConflict(t, create("a", next))
	if err := create("c", next); err != nil {
		t.Error(err)
	}
	// The turn alone.
	take(t, s, "pods/a")
	take(t, s, "pods/a")
	if err := second(s.Commit(t.Context(),
		Txn{Guards: []Guard{{Key: podKey("default", "a"), Condition: Present}}})); err == nil ||
		errors.As(err, new(*ConflictError)) {
		t.Errorf("a transaction that writes nothing: %v", err)
	}
	// Mutate judges again.
	judged := 0
	_, err := s.Mutate(t.Context(), podKey("default", "a"), func(live object.Object) (*Txn, error) {
		g := turn("pods/a")
		if judged++; judged < 3 {
			take(t, s, "pods/a")
		}
		p := object.Clone(live.(*corev1.Pod))
		p.Spec.NodeName = "n"
		return &Txn{Ops: []Op{{Key: podKey("default", "a"), Object: p}}, Guards: []Guard{g}}, nil
	})
	if err != nil || judged != 3 {
		t.Errorf("judged %d times: %v", judged, err)
	}
}

// Writers on two servers add pods as long as there are fewer than three, which each of them counts in its turn, and
// others delete them. There are never more than three.
//
// spec: OBJ-2
func TestTurnsOfTwoStores(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cfg := testConfig("")
	cfg.Connect = elsewhere(t)
	stores := []*Store{open(t, cfg), open(t, cfg)}
	const most = 3
	var writers sync.WaitGroup
	for worker := range uint64(8) {
		writers.Go(func() {
			r, s := rand.New(rand.NewPCG(seed, worker)), stores[worker%2]
			for i := range 30 {
				g, err := s.Turn(t.Context(), "pods/few")
				if err != nil {
					t.Error(err)
					return
				}
				have, err := s.List(t.Context(), corev1.PodKind, ListOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				n, key := len(have.Objects), podKey("default", fmt.Sprint(worker, "-", i))
				if n > most {
					t.Errorf("%d pods", n)
				}
				if n < most {
					_, err = s.Commit(t.Context(), Txn{Ops: []Op{{Key: key, Object: pod("default", key.Name)}}, Guards: []Guard{g}})
				} else {
					_, err = s.Mutate(t.Context(), keyOf(have.Objects[r.IntN(n)]), func(live object.Object) (*Txn, error) {
						if live == nil {
							return nil, nil
						}
						return &Txn{Ops: []Op{{Key: keyOf(live)}}}, nil
					})
				}
				if err != nil && !errors.As(err, new(*ConflictError)) {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// Who holds a turn writes as much as it likes, at a time too, until another one takes it. spec: OBJ-2
func contractHeldTurns(t *testing.T, s *Store) {
	create := func(name string, g Guard) error {
		return second(s.Commit(t.Context(), Txn{Ops: []Op{{Key: podKey("default", name), Object: pod("default", name)}},
			Guards: []Guard{g}}))
	}
	hold := func() Guard {
		t.Helper()
		g, err := s.TakeTurn(t.Context(), "quotas/a")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := hold()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := create(fmt.Sprint("h", i), first); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	now, err := s.Turn(t.Context(), "quotas/a")
	if err != nil || now.Revision != first.Revision {
		t.Errorf("what was written took the turn: %v, it was held since %v; %v", now, first, err)
	}
	next := hold()
	if c := wantConflict(t, create("late", first)); !c.Guard || c.Key != first.Key {
		t.Errorf("conflict %+v", c)
	}
	if err := create("next", next); err != nil {
		t.Error(err)
	}
}
