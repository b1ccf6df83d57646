package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// check compares t with what it is to hold, and looks at all that the package promises of nodes.
func check(t *testing.T, tr *Tree[*int], want map[string]*int) {
	t.Helper()
	if tr.Len() != len(want) {
		t.Fatalf("%d keys, want %d", tr.Len(), len(want))
	}
	keys := slices.Sorted(maps.Keys(want))
	i := 0
	for k, v := range tr.From("") {
		if i >= len(keys) || k != keys[i] || v != want[k] {
			t.Fatalf("key %d is %q", i, k)
		}
		i++
	}
	if i != len(keys) {
		t.Fatalf("%d keys in order, want %d", i, len(keys))
	}
	if tr.root != nil {
		checkNode(t, tr.root, "", "", true)
	}
}

func checkNode(t *testing.T, n *node[*int], from, to string, root bool) {
	t.Helper()
	if n.size() > most || n.size() == 0 {
		t.Fatalf("a node of size %d", n.size())
	}
	if !root && n.size() < least {
		t.Fatalf("a node of size %d below the root", n.size())
	}
	inside := func(k string) {
		if k < from || to != "" && k >= to {
			t.Fatalf("key %q is outside %q to %q", k, from, to)
		}
	}
	for _, p := range n.pairs[len(n.pairs):cap(n.pairs)] {
		if p.value != nil || p.key != "" {
			t.Fatalf("spare room holds %q", p.key)
		}
	}
	if n.leaf() {
		for _, p := range n.pairs {
			inside(p.key)
		}
		if n.count != len(n.pairs) {
			t.Fatalf("a leaf of %d counts %d", len(n.pairs), n.count)
		}
		return
	}
	for _, c := range n.children[len(n.children):cap(n.children)] {
		if c != nil {
			t.Fatal("spare room holds a child")
		}
	}
	count := 0
	for i, c := range n.children {
		low, high := from, to
		if i > 0 {
			low = n.keys[i-1]
			inside(low)
		}
		if i < len(n.keys) {
			high = n.keys[i]
		}
		checkNode(t, c, low, high, false)
		count += c.count
	}
	if n.count != count {
		t.Fatalf("a node counts %d, has %d", n.count, count)
	}
}

// TestRandomHistories: whatever is set and deleted in whatever order, a tree holds what a map does, and copies keep
// what they were made of.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			type version struct {
				tree *Tree[*int]
				want map[string]*int
			}
			versions := []version{{&Tree[*int]{}, map[string]*int{}}}
			span := 1 << (3 + rng.IntN(12))
			grow := 0.5
			for step := range 6000 {
				if step%1000 == 0 {
					grow = []float64{0.9, 0.1, 0.5}[rng.IntN(3)]
				}
				v := &versions[rng.IntN(len(versions))]
				k := fmt.Sprintf("k%05d", rng.IntN(span))
				was, had := v.want[k]
				if rng.Float64() < grow {
					x := new(int)
					if got, replaced := v.tree.Set(k, x); got != was || replaced != had {
						t.Fatalf("step %d: Set returned %p, %t; want %p, %t", step, got, replaced, was, had)
					}
					v.want[k] = x
				} else {
					if got, deleted := v.tree.Delete(k); got != was || deleted != had {
						t.Fatalf("step %d: Delete returned %p, %t; want %p, %t", step, got, deleted, was, had)
					}
					delete(v.want, k)
				}
				if step%1500 == 700 {
					versions = append(versions, version{v.tree.Copy(), maps.Clone(v.want)})
				}
				if step%500 == 0 {
					for _, v := range versions {
						check(t, v.tree, v.want)
					}
				}
			}
			for _, v := range versions {
				check(t, v.tree, v.want)
				keys := slices.Sorted(maps.Keys(v.want))
				for range 50 {
					k := fmt.Sprintf("k%05d", rng.IntN(span))
					at, _ := slices.BinarySearch(keys, k)
					if got := v.tree.Rank(k); got != at {
						t.Fatalf("Rank(%q) = %d, want %d", k, got, at)
					}
					if got, ok := v.tree.Get(k); got != v.want[k] || ok != (v.want[k] != nil) {
						t.Fatalf("Get(%q) = %p, %t", k, got, ok)
					}
					i := at
					for key := range v.tree.From(k) {
						if key != keys[i] {
							t.Fatalf("From(%q) gave %q, want %q", k, key, keys[i])
						}
						if i++; i == at+100 {
							break
						}
					}
				}
			}
		})
	}
}

// TestNothingIsKept: what was replaced can be collected. Keys come in order and all values are replaced after that, as
// pods are created, bound and run.
func TestNothingIsKept(t *testing.T) {
	var tr Tree[*int]
	want := map[string]*int{}
	for range 2 {
		for i := range 5000 {
			k, x := fmt.Sprintf("p%05d", i), new(int)
			tr.Set(k, x)
			want[k] = x
		}
	}
	check(t, &tr, want)
	room := 0
	for _, leaf := range tr.root.children {
		room += cap(leaf.pairs)
	}
	if room > 5000+2*most {
		t.Errorf("room for %d pairs; keys that come in order should leave none", room)
	}
}

func BenchmarkTree(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/pod-%06d", i)
	}
	var tr Tree[*int]
	for _, k := range keys {
		tr.Set(k, new(int))
	}
	b.Run("get", func(b *testing.B) {
		for i := range b.N {
			tr.Get(keys[i*7919%len(keys)])
		}
	})
	b.Run("replace", func(b *testing.B) {
		x := new(int)
		for i := range b.N {
			tr.Set(keys[i*7919%len(keys)], x)
		}
	})
	b.Run("replace after each copy", func(b *testing.B) {
		x := new(int)
		for i := range b.N {
			tr.Copy()
			tr.Set(keys[i*7919%len(keys)], x)
		}
	})
	b.Run("walk", func(b *testing.B) {
		for range b.N {
			n := 0
			for range tr.From("") {
				n++
			}
		}
	})
	b.Run("build", func(b *testing.B) {
		for range b.N {
			var t Tree[*int]
			for _, k := range keys {
				t.Set(k, nil)
			}
		}
	})
}
