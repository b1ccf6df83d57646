package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/fields"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/object"
)

// resumeEverywhere breaks a watch that has seen all, from revision start on, off after each event: resumed there it
// must deliver exactly the rest, or say that it cannot. It returns how often it could and could not.
func resumeEverywhere(
	t *testing.T, s *Store, kind *object.Kind, start int64, all []object.Event,
) (exact, expired int) {
	t.Helper()
	want := describe(all)
	from := start
	for i := 0; ; i++ {
		w, err := s.Watch(t.Context(), kind, WatchOptions{ResourceVersion: itoa(from)})
		switch {
		case err == nil:
			if got := describe(collect(t, w, len(all)-i)); !slices.Equal(got, want[i:]) {
				t.Errorf("resumed at %d, after %d events: %d events, want %d", from, i, len(got), len(want)-i)
			}
			none, cancel := context.WithCancel(t.Context())
			cancel()
			if more, _ := w.Next(none); len(more) > 0 {
				t.Errorf("resumed at %d, after %d events: %v, too", from, i, describe(more))
			}
			w.Stop()
			exact++
		case apierrors.Is(err, apierrors.Expired):
			expired++
		default:
			t.Fatal(err)
		}
		if i == len(all) {
			return exact, expired
		}
		revision, _ := strconv.ParseInt(revOf(all[i].Object), 10, 64)
		if revision < from {
			t.Fatalf("event %d is of revision %d, after %d", i, revision, from)
		}
		from = revision
	}
}

// Many objects that are deleted at one revision, as etcd does when a lease expires, are DELETED once each for every
// watcher, wherever it was broken off. spec: OBJ-7
func contractManyDeletions(t *testing.T, s *Store) {
	const n = 30
	for i := range n {
		p := pod("default", fmt.Sprintf("p%02d", i))
		p.Spec.NodeName = fmt.Sprint("n", i%3)
		create(t, s, p)
	}
	start, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := watch(t, s, WatchOptions{ResourceVersion: itoa(start)})
	node := watch(t, s, WatchOptions{ResourceVersion: itoa(start), Field: fields.OneTermEqualSelector("spec.nodeName",
		"n1")})
	relabel(t, s, podKey("default", "p00"), "last")
	prefix := s.byKind[corev1.PodKind].prefix + "default/"
	_, err = s.client.Txn(t.Context(), &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{
		Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{
			Key: []byte(prefix), RangeEnd: []byte(prefixEnd(prefix)),
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	after := create(t, s, pod("default", "q"))
	events := collect(t, all, 1+n+1)
	if got := describe(events)[n]; got != fmt.Sprint("DELETED default/p29@", after-1) {
		t.Errorf("the last deletion is %s, want it at %d", got, after-1)
	}
	exact, expired := resumeEverywhere(t, s, corev1.PodKind, start, events)
	if exact != 3 || expired != n {
		t.Errorf("%d resumes were exact and %d expired, want 3 and %d", exact, expired, n)
	}
	for _, e := range collect(t, node, n/3) {
		if e.Type != object.Deleted {
			t.Errorf("a watcher of a node saw %v", describe([]object.Event{e}))
		}
	}
	// Who lists is behind all of it.
	items, err := s.List(t.Context(), corev1.PodKind, ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, s, WatchOptions{ResourceVersion: items.Meta.ResourceVersion})
	quietFor(t, w)
}

// Of a kind that is bounded the oldest go when there are too many; what has been written since stays. spec: OBJ-13
func contractTooManyObjects(t *testing.T, s *Store) {
	const n, most = 350, 100
	k := s.byKind[corev1.EventKind]
	start, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), corev1.EventKind, WatchOptions{ResourceVersion: itoa(start)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := func(i int) *corev1.Event {
		return &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("e%03d", i)}}
	}
	for i := range n {
		create(t, s, event(i))
	}
	// The very first is written again, and so among the newest.
	if _, err := s.Mutate(t.Context(), keyOf(event(0)), func(live object.Object) (*Txn, error) {
		e := object.Clone(live.(*corev1.Event))
		e.Count = 2
		return &Txn{Ops: []Op{{Key: keyOf(e), Object: e}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revision(t.Context()); err != nil { // the cache is there
		t.Fatal(err)
	}
	// One that is written while it is about to be deleted stays.
	stale := k.cache.Oldest(most)[0]
	if _, err := s.Commit(t.Context(),
		Txn{Ops: []Op{{Key: keyOf(event(1)), Object: event(1), Expect: stale.Revision}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.evictBatch(t.Context(), k, []*watchcache.Item{stale}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), keyOf(event(1)), ""); err != nil {
		t.Errorf("an event that was written again: %v", err)
	}
	for batch := range slices.Chunk(k.cache.Oldest(most), evictBatch) {
		if err := s.evictBatch(t.Context(), k, batch); err != nil {
			t.Fatal(err)
		}
	}
	items, err := s.List(t.Context(), corev1.EventKind, ListOptions{})
	if err != nil || len(items.Objects) != most {
		t.Fatalf("%d events are left, %v", len(items.Objects), err)
	}
	for i, o := range items.Objects {
		if want := n - most + i; i > 1 && o.GetMetadata().GetName() != event(want).Metadata.Name {
			t.Fatalf("%s is left", o.GetMetadata().GetName())
		}
	}
	events := collect(t, w, n+2+n-most)
	if exact, expired := resumeEverywhere(t, s, corev1.EventKind, start, events); exact < n || expired == 0 {
		t.Errorf("%d resumes were exact, %d expired", exact, expired)
	}
}

// The store keeps a kind within its bound by itself, after a restart too. spec: OBJ-13
func TestBoundedKind(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const n = 350
		cfg := testConfig(dir)
		for most := 250; most > 0; most -= 150 {
			for i := range cfg.Collections {
				if cfg.Collections[i].Kind == corev1.EventKind {
					cfg.Collections[i].Max = most
				}
			}
			s := open(t, cfg)
			w, err := s.Watch(t.Context(), corev1.EventKind, WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if most == 250 {
				for i := range n {
					create(t, s, &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("e%03d", i)}})
				}
			}
			left := map[string]bool{}
			for seen := 0; seen < 250 || len(left) != most; {
				for _, e := range collectFor(t, w, 1, time.Minute) {
					seen++
					if name := e.Object.GetMetadata().GetName(); e.Type == object.Added {
						left[name] = true
					} else {
						delete(left, name)
					}
				}
			}
			for i := n - most; i < n; i++ {
				if !left[fmt.Sprintf("e%03d", i)] {
					t.Errorf("%d of %d is gone", i, n)
				}
			}
			w.Stop()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// All events of a minute share a lease, and go at one revision when it ends. spec: OBJ-7, OBJ-13
func TestExpiryIsSeenExactlyOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const n = 700
		cfg := testConfig(dir)
		s := open(t, cfg)
		start, err := s.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			create(t, s, &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("e%03d", i)}})
		}
		w, err := s.Watch(t.Context(), corev1.EventKind, WatchOptions{ResourceVersion: itoa(start)})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		events := collectFor(t, w, 2*n, 2*time.Hour)
		deleted := map[string]bool{}
		for _, e := range events[n:] {
			if e.Type == object.Deleted {
				deleted[e.Object.GetMetadata().GetName()] = true
			}
		}
		if len(deleted) != n {
			t.Errorf("%d of %d events are DELETED", len(deleted), n)
		}
		exact, expired := resumeEverywhere(t, s, corev1.EventKind, start, events)
		t.Logf("%d resumes were exact, %d expired", exact, expired)
		// The last who was told of a creation was told to list again; and so was everybody among the deletions.
		if exact != n+1 || expired != n {
			t.Error("the events have not gone at one revision, or it cannot be resumed where it could be")
		}
	})
}

// collectFor is collect for events that come later.
func collectFor(t testing.TB, w *Watcher, n int, limit time.Duration) []object.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var events []object.Event
	for len(events) < n {
		batch, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%d of %d events: %v", len(events), n, err)
		}
		events = append(events, batch...)
	}
	return events
}
