// Package tree is an ordered map with strings for keys that is copied at no cost: a copy shares all nodes with the
// tree that it was made of, and whichever of the two is written to next copies the few nodes on the way.
//
//   - A tree is not safe for concurrent use, but copies are independent: one goroutine may read a copy while another
//     writes to the tree it came from.
//   - Nothing that was replaced or deleted is kept alive by spare room in a node. A library that let nodes share their
//     room held on to the former state of every second object.
//   - Keys that come in order leave no spare room: a tree that is read from storage takes what its pairs need.
//   - Set, Get, Delete and Rank take O(log n).
//
// It is a B+ tree: pairs are in the leaves alone.
//
//	var t tree.Tree[*Item]
//	t.Set("default/web", item)
//	seen := t.Copy()
//	for key, item := range seen.From("default/") { ... }
package tree

import (
	"iter"
	"slices"
)

const (
	// most is how many pairs a leaf, and how many children an inner node, has at most; least is how few all but the root
	// have.
	most  = 64
	least = most / 4
)

// Tree is the map. The zero value is empty and ready for use.
type Tree[V any] struct {
	root *node[V]
	own  *owner
}

// owner tells whose a node is. Who has another one may read the node only.
type owner struct{ _ byte }

type pair[V any] struct {
	key   string
	value V
}

// node is a leaf, which has pairs, or an inner node, which has children. Invariant: all keys under children[i] are
// less than keys[i], and all under children[i+1] are not.
type node[V any] struct {
	own      *owner
	count    int // of the pairs in and under the node
	pairs    []pair[V]
	keys     []string
	children []*node[V]
}

func (n *node[V]) leaf() bool { return n.children == nil }

func (n *node[V]) size() int { return max(len(n.pairs), len(n.children)) }

// find returns where key is in a leaf, or belongs.
func (n *node[V]) find(key string) (int, bool) {
	low, high := 0, len(n.pairs)
	for low < high {
		if i := (low + high) / 2; n.pairs[i].key < key {
			low = i + 1
		} else {
			high = i
		}
	}
	return low, low < len(n.pairs) && n.pairs[low].key == key
}

// child returns which child of an inner node key is under.
func (n *node[V]) child(key string) int {
	low, high := 0, len(n.keys)
	for low < high {
		if i := (low + high) / 2; n.keys[i] <= key {
			low = i + 1
		} else {
			high = i
		}
	}
	return low
}

// Len returns how many keys there are.
func (t *Tree[V]) Len() int {
	if t.root == nil {
		return 0
	}
	return t.root.count
}

// Copy returns a tree with the same content. It takes no time and, until one of the two is written to, no memory.
func (t *Tree[V]) Copy() *Tree[V] {
	t.own = new(owner)
	return &Tree[V]{root: t.root, own: new(owner)}
}

// Get returns the value of key.
func (t *Tree[V]) Get(key string) (value V, ok bool) {
	n := t.root
	if n == nil {
		return value, false
	}
	for !n.leaf() {
		n = n.children[n.child(key)]
	}
	if i, found := n.find(key); found {
		return n.pairs[i].value, true
	}
	return value, false
}

// Rank returns how many keys are less than key.
func (t *Tree[V]) Rank(key string) int {
	n, rank := t.root, 0
	if n == nil {
		return 0
	}
	for !n.leaf() {
		i := n.child(key)
		for _, c := range n.children[:i] {
			rank += c.count
		}
		n = n.children[i]
	}
	i, _ := n.find(key)
	return rank + i
}

// From iterates over the keys from key on, in their order; the empty key is before all. The tree must not be written
// to meanwhile.
func (t *Tree[V]) From(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t.root != nil {
			t.root.ascend(key, yield)
		}
	}
}

func (n *node[V]) ascend(from string, yield func(string, V) bool) bool {
	if n.leaf() {
		i := 0
		if from != "" {
			i, _ = n.find(from)
		}
		for ; i < len(n.pairs); i++ {
			if !yield(n.pairs[i].key, n.pairs[i].value) {
				return false
			}
		}
		return true
	}
	i := 0
	if from != "" {
		i = n.child(from)
	}
	for _, c := range n.children[i:] {
		if !c.ascend(from, yield) {
			return false
		}
		from = ""
	}
	return true
}

// Set gives key a value and returns the one that it had.
func (t *Tree[V]) Set(key string, value V) (previous V, replaced bool) {
	if t.own == nil {
		t.own = new(owner)
	}
	p := pair[V]{key, value}
	if t.root == nil {
		t.root = &node[V]{own: t.own, count: 1, pairs: []pair[V]{p}}
		return previous, false
	}
	left := t.writable(&t.root)
	right, split, previous, replaced := t.set(left, p)
	if right != nil {
		t.root = &node[V]{
			own: t.own, count: left.count + right.count, keys: []string{split}, children: []*node[V]{left, right},
		}
	}
	return previous, replaced
}

// writable returns the node at *at, after putting a copy there if it is not the tree's own.
func (t *Tree[V]) writable(at **node[V]) *node[V] {
	if n := *at; n.own != t.own {
		*at = &node[V]{
			own: t.own, count: n.count,
			pairs: slices.Clone(n.pairs), keys: slices.Clone(n.keys), children: slices.Clone(n.children),
		}
	}
	return *at
}

// set puts p under n, which is writable. A node that grew too large leaves its end to right, whose keys begin at
// split.
func (t *Tree[V]) set(n *node[V], p pair[V]) (right *node[V], split string, previous V, replaced bool) {
	if n.leaf() {
		i, found := n.find(p.key)
		if found {
			previous, n.pairs[i] = n.pairs[i].value, p
			return nil, "", previous, true
		}
		if len(n.pairs) == most {
			at := most / 2
			if i == most {
				at = most - least // keys that come in order: the next one goes to the right too
			}
			right = &node[V]{own: t.own, pairs: slices.Clone(n.pairs[at:]), count: most - at}
			n.pairs, n.count = slices.Clone(n.pairs[:at]), at
			if i >= at {
				n, i = right, i-at
			}
			n.pairs, n.count = slices.Insert(n.pairs, i, p), n.count+1
			return right, right.pairs[0].key, previous, false
		}
		n.pairs, n.count = slices.Insert(n.pairs, i, p), n.count+1
		return nil, "", previous, false
	}
	i := n.child(p.key)
	more, at, previous, replaced := t.set(t.writable(&n.children[i]), p)
	if !replaced {
		n.count++
	}
	if more == nil {
		return nil, "", previous, replaced
	}
	n.keys, n.children = slices.Insert(n.keys, i, at), slices.Insert(n.children, i+1, more)
	if len(n.children) <= most {
		return nil, "", previous, replaced
	}
	const half = most / 2
	split = n.keys[half-1]
	right = &node[V]{own: t.own, keys: slices.Clone(n.keys[half:]), children: slices.Clone(n.children[half:])}
	n.keys = slices.Delete(n.keys, half-1, len(n.keys))
	n.children = slices.Delete(n.children, half, len(n.children))
	n.recount()
	right.recount()
	return right, split, previous, replaced
}

// recount sets the count of an inner node.
func (n *node[V]) recount() {
	n.count = 0
	for _, c := range n.children {
		n.count += c.count
	}
}

// Delete removes key and returns the value that it had.
func (t *Tree[V]) Delete(key string) (previous V, deleted bool) {
	if previous, deleted = t.Get(key); !deleted {
		return previous, false
	}
	t.remove(t.writable(&t.root), key)
	switch {
	case t.root.count == 0:
		t.root = nil
	case len(t.root.children) == 1:
		t.root = t.root.children[0]
	}
	return previous, true
}

// remove takes key from under n, which is writable; it is there.
func (t *Tree[V]) remove(n *node[V], key string) {
	n.count--
	if n.leaf() {
		i, _ := n.find(key)
		n.pairs = slices.Delete(n.pairs, i, i+1)
		return
	}
	i := n.child(key)
	c := t.writable(&n.children[i])
	t.remove(c, key)
	if c.size() < least {
		t.level(n, max(i, 1))
	}
}

// level makes one of the children i-1 and i of n if that is small enough, and otherwise two of the same size.
func (t *Tree[V]) level(n *node[V], i int) {
	left, right := n.children[i-1], n.children[i]
	all := node[V]{pairs: slices.Concat(left.pairs, right.pairs), children: slices.Concat(left.children, right.children)}
	if !left.leaf() {
		all.keys = slices.Concat(left.keys, n.keys[i-1:i], right.keys)
	}
	if all.size() <= most {
		n.children[i-1] = &node[V]{
			own: t.own, count: left.count + right.count, pairs: all.pairs, keys: all.keys, children: all.children,
		}
		n.keys, n.children = slices.Delete(n.keys, i-1, i), slices.Delete(n.children, i, i+1)
		return
	}
	half := all.size() / 2
	first, second := &node[V]{own: t.own}, &node[V]{own: t.own}
	if left.leaf() {
		first.pairs, second.pairs = slices.Clone(all.pairs[:half]), slices.Clone(all.pairs[half:])
		first.count, second.count = half, len(all.pairs)-half
		n.keys[i-1] = second.pairs[0].key
	} else {
		first.children, second.children = slices.Clone(all.children[:half]), slices.Clone(all.children[half:])
		first.keys, second.keys = slices.Clone(all.keys[:half-1]), slices.Clone(all.keys[half:])
		first.recount()
		second.recount()
		n.keys[i-1] = all.keys[half-1]
	}
	n.children[i-1], n.children[i] = first, second
}
