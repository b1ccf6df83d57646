package graph_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/garbagecollector/graph"
)

func meta(uid string, owners ...*metav1.OwnerReference) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "ns", Name: "n-" + uid, Uid: uid, OwnerReferences: owners}
}

func ref(uid string, blocks bool) *metav1.OwnerReference {
	return &metav1.OwnerReference{ApiVersion: "v1", Kind: "ConfigMap", Name: "n-" + uid, Uid: uid,
		BlockOwnerDeletion: &blocks}
}

func deleting(m *metav1.ObjectMeta, finalizers ...string) *metav1.ObjectMeta {
	m.DeletionTimestamp, m.Finalizers = &metav1.Time{Seconds: 1}, finalizers
	return m
}

// expect compares what is to be looked at, in any order.
func expect(t *testing.T, what string, got []graph.UID, want ...string) {
	t.Helper()
	var uids []graph.UID
	for _, w := range want {
		uids = append(uids, graph.UIDOf(w))
	}
	order := func(a, b graph.UID) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(got, order)
	slices.SortFunc(uids, order)
	if got = slices.Compact(got); !slices.Equal(got, uids) {
		t.Errorf("%s: look at %v, want %v (%v)", what, got, uids, want)
	}
}

// spec: OBJ-12
func TestWhatToLookAt(t *testing.T) {
	g, kind := graph.New(), corev1.ConfigMapKind
	set := func(m *metav1.ObjectMeta) []graph.UID { return g.Set(kind, m) }

	expect(t, "an owner", set(meta("o")))
	expect(t, "a dependent of it", set(meta("d", ref("o", true))))
	expect(t, "the same again", set(meta("d", ref("o", true))))
	expect(t, "a dependent of nobody", set(meta("x", ref("none", false))), "x")
	expect(t, "the same again", set(meta("x", ref("none", false))))
	wrong := ref("o", false)
	wrong.Name = "another"
	expect(t, "another name", set(meta("y", wrong)), "y")
	wrong = ref("o", false)
	wrong.Kind = "Secret"
	expect(t, "another kind", set(meta("y", wrong)), "y")
	abroad := meta("z", ref("o", false))
	abroad.Namespace = "other"
	expect(t, "another namespace", set(abroad), "z")
	unclear := ref("nobody", false)
	unclear.Kind = "Lease"
	expect(t, "two that are not there", set(meta("w", ref("gone", false), unclear)), "w")
	expect(t, "one of them is taken away", set(meta("w", ref("gone", false))), "w")
	expect(t, "another in its place", set(meta("w", ref("o", false))))
	expect(t, "one more", set(meta("w", ref("o", false), ref("gone", false))), "w")
	expect(t, "the doubtful one is taken away", set(meta("w", ref("o", false))))
	expect(t, "gone", g.Delete(graph.UIDOf("w")))
	expect(t, "the owner comes late", set(meta("none")))

	expect(t, "the owner waits", set(deleting(meta("o"), "foregroundDeletion")), "o", "d", "y", "z")
	if g.Blocking(graph.UIDOf("o")) != 1 || g.Cycle(graph.UIDOf("o")) {
		t.Errorf("%d block", g.Blocking(graph.UIDOf("o")))
	}
	expect(t, "a dependent of who waits", set(meta("e", ref("o", true))), "e")
	expect(t, "one does not block any more", set(meta("d", ref("o", false))))
	expect(t, "nor the last", g.Delete(graph.UIDOf("e")), "o")
	expect(t, "a dependent that is deleted", set(deleting(meta("d", ref("o", false)))))
	expect(t, "the owner is gone", g.Delete(graph.UIDOf("o")), "d", "y", "z")
	expect(t, "gone again", g.Delete(graph.UIDOf("o")))

	expect(t, "an orphaning owner", set(deleting(meta("none"), "orphan")), "none")
	expect(t, "a dependent of it", set(meta("f", ref("none", false))), "none")
	expect(t, "one leaves", set(meta("x")))
	expect(t, "the last leaves", set(meta("f")), "none")

	// What a complete reading does not show is gone.
	set(meta("p"))
	set(meta("q", ref("p", false)))
	seen := map[graph.UID]struct{}{}
	for _, uid := range []string{"q", "x", "y", "z", "f", "none", "d"} {
		seen[graph.UIDOf(uid)] = struct{}{}
	}
	expect(t, "another kind is read", g.Keep(corev1.PodKind, nil))
	expect(t, "the kind is read", g.Keep(kind, seen), "q")
}

// Who waits for itself is found, however long the way and whatever else waits. spec: OBJ-12
func TestCycle(t *testing.T) {
	g, kind := graph.New(), corev1.ConfigMapKind
	wait := func(uid string, owners ...*metav1.OwnerReference) {
		g.Set(kind, deleting(meta(uid, owners...), "foregroundDeletion"))
	}
	wait("a", ref("b", true))
	wait("b", ref("c", true), ref("side", true))
	wait("side")
	wait("c")
	cycle := func(uid string) bool { return g.Cycle(graph.UIDOf(uid)) }
	if cycle("a") || cycle("b") || cycle("c") || cycle("none") {
		t.Error("a cycle where there is none")
	}
	wait("c", ref("a", true))
	if !cycle("a") || !cycle("b") || !cycle("c") || cycle("side") {
		t.Errorf("%t %t %t %t", cycle("a"), cycle("b"), cycle("c"), cycle("side"))
	}
	wait("c", ref("a", false))
	if cycle("a") || cycle("c") {
		t.Error("a cycle that does not block")
	}
}

// However edges come and go, the graph counts them right, and forgets what is gone.
func TestRandomEdges(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g, live := graph.New(), map[string]*metav1.ObjectMeta{}
		name := func() string { return fmt.Sprint(rng.IntN(12)) }
		for range 400 {
			uid := name()
			switch rng.IntN(4) {
			case 0:
				delete(live, uid)
				g.Delete(graph.UIDOf(uid))
			default:
				m := meta(uid)
				for range rng.IntN(4) {
					m.OwnerReferences = append(m.OwnerReferences, ref(name(), rng.IntN(2) == 0))
				}
				live[uid] = m
				g.Set(corev1.ConfigMapKind, m)
			}
			known, blocking := map[string]bool{}, map[string]int{}
			for uid, m := range live {
				known[uid] = true
				for _, r := range m.OwnerReferences {
					known[r.Uid] = true
					if r.GetBlockOwnerDeletion() {
						blocking[r.Uid]++
					}
				}
			}
			if g.Len() != len(known) {
				t.Fatalf("seed %d: %d objects, want %d", seed, g.Len(), len(known))
			}
			for uid := range known {
				o, ok := g.Get(graph.UIDOf(uid))
				if m := live[uid]; ok != (m != nil) || ok && o.Owned != (len(m.OwnerReferences) > 0) ||
					g.Blocking(graph.UIDOf(uid)) != blocking[uid] {
					t.Fatalf("seed %d: %s is %+v, %t, blocked by %d of %d", seed, uid, o, ok,
						g.Blocking(graph.UIDOf(uid)), blocking[uid])
				}
			}
		}
		for uid := range live {
			g.Delete(graph.UIDOf(uid))
		}
		if g.Len() != 0 {
			t.Errorf("seed %d: %d objects are left", seed, g.Len())
		}
	}
}

// fill makes n objects, each named by the next if they are owned, else in groups of a hundred with one owner.
func fill(n, group int) *graph.Graph {
	g := graph.New()
	for i := range n {
		uid := func(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", i) }
		m := &metav1.ObjectMeta{Namespace: "namespace", Name: fmt.Sprintf("deployment-7d4b9c6f5-%05d", i), Uid: uid(i)}
		if owner := i / group * group; group > 1 && owner != i {
			yes := true
			m.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Pod",
				Name: fmt.Sprintf("deployment-7d4b9c6f5-%05d", owner), Uid: uid(owner), Controller: &yes,
				BlockOwnerDeletion: &yes}}
		}
		g.Set(corev1.PodKind, m)
	}
	return g
}

// An object takes less than 300 bytes, and less than 100 if it has and is no owner.
func TestMemory(t *testing.T) {
	for _, n := range []int{10_000, 100_000} {
		for group, most := range map[int]float64{1: 100, 2: 300, 100: 300} {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			g := fill(n, group)
			runtime.GC()
			runtime.ReadMemStats(&after)
			each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(g.Len())
			t.Logf("%d objects in groups of %d: %.0f bytes each", n, group, each)
			if each > most {
				t.Errorf("%d objects in groups of %d take %.0f bytes each, more than %.0f", n, group, each, most)
			}
			runtime.KeepAlive(g)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	g := fill(10_000, 100)
	yes := true
	m := &metav1.ObjectMeta{Namespace: "namespace", Name: "deployment-7d4b9c6f5-00001",
		Uid: "00000001-0000-4000-8000-000000000000", OwnerReferences: []*metav1.OwnerReference{{ApiVersion: "v1",
			Kind: "Pod", Name: "deployment-7d4b9c6f5-00000", Uid: "00000000-0000-4000-8000-000000000000",
			Controller: &yes, BlockOwnerDeletion: &yes}}}
	b.ReportAllocs()
	for b.Loop() {
		g.Set(corev1.PodKind, m)
	}
}
