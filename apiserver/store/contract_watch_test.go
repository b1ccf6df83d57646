package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

func watch(t testing.TB, s *Store, opts WatchOptions) *Watcher {
	t.Helper()
	w, err := s.Watch(t.Context(), corev1.PodKind, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func wantEvents(t testing.TB, w *Watcher, want ...string) []object.Event {
	t.Helper()
	events := collect(t, w, len(want))
	if got := describe(events); !slices.Equal(got, want) {
		t.Errorf("got events\n%q, want\n%q", got, want)
	}
	return events
}

// spec: OBJ-7
func contractWatch(t *testing.T, s *Store) {
	start, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, s, WatchOptions{ResourceVersion: itoa(start)})
	r1 := create(t, s, pod("default", "a"))
	create(t, s, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n"}})
	r3, _ := strconv.ParseInt(relabel(t, s, podKey("default", "a"), "1").GetMetadata().GetResourceVersion(), 10, 64)
	remove(t, s, podKey("default", "a"))
	r4 := r3 + 1
	want := []string{
		fmt.Sprint("ADDED default/a@", r1), fmt.Sprint("MODIFIED default/a@", r3), fmt.Sprint("DELETED default/a@", r4),
	}
	events := wantEvents(t, w, want...)
	if last := events[2].Object.(*corev1.Pod); last.Metadata.Labels["v"] != "1" {
		t.Errorf("deleted in the state %v", last)
	}
	if events[1].Object.GetMetadata().GetResourceVersion() != itoa(r3) {
		t.Error("the deletion has changed the state before it")
	}
	// Resuming anywhere gives exactly the rest.
	for i, from := range []int64{start, r1, r3, r4} {
		w := watch(t, s, WatchOptions{ResourceVersion: itoa(from)})
		if i < 3 {
			wantEvents(t, w, want[i:]...)
		}
		quietFor(t, w)
	}
	_, err = s.Watch(t.Context(), corev1.PodKind, WatchOptions{ResourceVersion: itoa(start - 1)})
	wantReason(t, err, apierrors.Expired)
	// A change at a revision that was still to come has been seen, like those before it.
	future := watch(t, s, WatchOptions{ResourceVersion: itoa(r4 + 2), AllowBookmarks: true})
	part := watch(t, s, WatchOptions{ResourceVersion: itoa(r4 + 2), Namespace: "default"})
	quietFor(t, future)
	create(t, s, pod("default", "b"))
	create(t, s, pod("default", "c"))
	r7 := create(t, s, pod("default", "d"))
	wantEvents(t, future, fmt.Sprint("ADDED default/d@", r7))
	wantEvents(t, part, fmt.Sprint("ADDED default/d@", r7))
	_, err = s.Watch(t.Context(), corev1.PodKind, WatchOptions{ResourceVersion: "nonsense"})
	wantReason(t, err, apierrors.BadRequest)
	w.Stop()
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}

// A watch that is about to end says how far it has come.
//
// spec: OBJ-7
func contractLastBookmark(t *testing.T, s *Store) {
	r1 := create(t, s, pod("default", "a"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+500*time.Millisecond)
	defer cancel()
	w, err := s.Watch(ctx, corev1.PodKind, WatchOptions{ResourceVersion: itoa(r1), AllowBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	wantEvents(t, w, fmt.Sprint("BOOKMARK @", r1))
}

// quietFor checks that nothing more is there.
func quietFor(t testing.TB, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if events, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("more events: %v, %v", describe(events), err)
	}
}

// spec: OBJ-7
func contractInitialEvents(t *testing.T, s *Store) {
	r1, r2 := create(t, s, pod("a", "1")), create(t, s, pod("b", "1"))
	initial := []string{fmt.Sprint("ADDED a/1@", r1), fmt.Sprint("ADDED b/1@", r2)}
	for _, rv := range []string{"", "0"} {
		w := watch(t, s, WatchOptions{ResourceVersion: rv})
		wantEvents(t, w, initial...)
		quietFor(t, w)
	}
	w := watch(t, s, WatchOptions{SendInitialEvents: true, AllowBookmarks: true, ResourceVersion: itoa(r1)})
	events := wantEvents(t, w, append(initial, fmt.Sprint("BOOKMARK @", r2))...)
	if events[2].Object.GetMetadata().GetAnnotations()[object.InitialEventsEnd] != "true" {
		t.Error("the bookmark does not end the initial events")
	}
	if _, ok := events[2].Object.(*corev1.Pod); !ok {
		t.Errorf("a bookmark of kind %T", events[2].Object)
	}
	r3 := create(t, s, pod("c", "1"))
	wantEvents(t, w, fmt.Sprint("ADDED c/1@", r3))
	w = watch(t, s, WatchOptions{SendInitialEvents: true, Namespace: "b"})
	wantEvents(t, w, initial[1])
	quietFor(t, w)
	_, err := s.Watch(t.Context(), corev1.PodKind, WatchOptions{SendInitialEvents: true, ResourceVersion: itoa(r3 + 1)})
	wantReason(t, err, apierrors.Timeout)
}

// spec: OBJ-7
func contractSelectorTransitions(t *testing.T, s *Store) {
	start, _ := s.Revision(t.Context())
	key := podKey("default", "a")
	opts := map[string]WatchOptions{
		"label": {Label: labels.SelectorFromSet(labels.Set{"v": "yes"})},
		"label+name": {Label: labels.SelectorFromSet(labels.Set{"v": "yes"}),
			Field: fields.OneTermEqualSelector("metadata.name", "a"), Namespace: "default"},
		"label+namespace": {Label: labels.SelectorFromSet(labels.Set{"v": "yes"}), Namespace: "default"},
	}
	live := map[string]*Watcher{}
	for name, o := range opts {
		o.ResourceVersion = itoa(start)
		live[name] = watch(t, s, o)
	}
	r1 := create(t, s, pod("default", "a"))
	r2 := revOf(relabel(t, s, key, "yes"))
	r3 := revOf(rename(t, s, key, "n1"))
	r4 := revOf(relabel(t, s, key, "no"))
	r5 := revOf(relabel(t, s, key, "yes"))
	remove(t, s, key)
	create(t, s, pod("default", "b"))
	_ = r1
	want := []string{
		"ADDED default/a@" + r2, "MODIFIED default/a@" + r3, "DELETED default/a@" + r4, "ADDED default/a@" + r5,
		"DELETED default/a@" + next(r5),
	}
	for name, w := range live {
		t.Run(name, func(t *testing.T) {
			events := wantEvents(t, w, want...)
			if gone := events[2].Object.(*corev1.Pod); gone.Metadata.Labels["v"] != "yes" {
				t.Errorf("stopped matching in the state %v", gone.Metadata.Labels)
			}
			quietFor(t, w)
			o := opts[name]
			o.ResourceVersion = r2
			wantEvents(t, watch(t, s, o), want[1:]...)
		})
	}
}

// spec: OBJ-7
func contractIndexedWatch(t *testing.T, s *Store) {
	start, _ := s.Revision(t.Context())
	on := func(node string, rv string) *Watcher {
		return watch(t, s, WatchOptions{Field: fields.OneTermEqualSelector("spec.nodeName", node), ResourceVersion: rv})
	}
	n1, n2 := on("n1", itoa(start)), on("n2", itoa(start))
	key := podKey("default", "a")
	create(t, s, pod("default", "a"))
	r2 := revOf(rename(t, s, key, "n1"))
	r3 := revOf(rename(t, s, key, "n2"))
	r4 := revOf(relabel(t, s, key, "x"))
	remove(t, s, key)
	first := []string{"ADDED default/a@" + r2, "DELETED default/a@" + r3}
	second := []string{"ADDED default/a@" + r3, "MODIFIED default/a@" + r4, "DELETED default/a@" + next(r4)}
	events := wantEvents(t, n1, first...)
	if p := events[1].Object.(*corev1.Pod); p.Spec.NodeName != "n1" {
		t.Errorf("left the node in the state %v", p.Spec)
	}
	wantEvents(t, n2, second...)
	wantEvents(t, on("n1", r2), first[1:]...)
	wantEvents(t, on("n2", r3), second[1:]...)
	quietFor(t, on("n3", itoa(start)))
	_, err := s.Watch(t.Context(), corev1.PodKind, WatchOptions{Field: fields.OneTermEqualSelector("spec.x", "y")})
	wantReason(t, err, apierrors.BadRequest)
}

func revOf(o object.Object) string { return o.GetMetadata().GetResourceVersion() }

func next(rv string) string {
	n, _ := strconv.ParseInt(rv, 10, 64)
	return itoa(n + 1)
}

// rename puts the pod on another node.
func rename(t testing.TB, s *Store, key Key, node string) object.Object {
	t.Helper()
	o, err := s.Mutate(t.Context(), key, func(live object.Object) (*Txn, error) {
		p := object.Clone(live.(*corev1.Pod))
		p.Spec.NodeName = node
		return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
