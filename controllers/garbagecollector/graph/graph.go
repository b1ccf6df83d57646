package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/propagation"
)

// UID stands for a uid.
type UID [16]byte

// UIDOf returns what stands for a uid.
func UIDOf(uid string) UID {
	var room [48]byte // for any uid that the server has given
	sum := sha256.Sum256(append(room[:0], uid...))
	return UID(sum[:16])
}

// String returns the hash in hexadecimal digits, for logs.
func (u UID) String() string { return hex.EncodeToString(u[:]) }

// State is how far the deletion of an object has come.
type State uint8

// The states.
const (
	// Alive is not being deleted.
	Alive State = iota
	// Deleting is on its way, and waits for no dependents.
	Deleting
	// Foreground waits for its blocking dependents to be gone.
	Foreground
	// Orphaning waits for its dependents to name it no more.
	Orphaning
)

// StateOf returns the state that metadata tells.
func StateOf(m *metav1.ObjectMeta) State {
	switch {
	case m.GetDeletionTimestamp() == nil:
		return Alive
	case slices.Contains(m.GetFinalizers(), propagation.OrphanFinalizer):
		return Orphaning
	case slices.Contains(m.GetFinalizers(), propagation.ForegroundFinalizer):
		return Foreground
	default:
		return Deleting
	}
}

// Object is what the graph knows of an object.
type Object struct {
	Kind            *object.Kind
	Namespace, Name string
	State           State
	// Owned says that it names owners, Owns that others name it.
	Owned, Owns bool
}

// Graph is the graph. Use New.
type Graph struct {
	seed maphash.Seed

	mu sync.Mutex
	// objects are those that a watch has shown, and those that are only named.
	objects map[UID]entry
	places  places
}

// entry is an object in brief.
type entry struct {
	// node is nil for an object that has and is no owner, and waits for nothing.
	node *node
	// place is 0 for a virtual object.
	place uint32
	// name is the hash of the name.
	name uint32
}

// node is an object with edges, or one that waits.
type node struct {
	uid UID
	// name is empty for an owner of which no more than that was needed yet.
	name string
	// owners are the edges to what it names, dependents those from what names it.
	owners, dependents *edge
	// blocking is how many edges from dependents count.
	blocking int32
	state    State
}

// edge is one reference of a dependent to an owner.
type edge struct {
	owner, dependent *node
	// next is the next edge of the same dependent; the others are its neighbours among those of the owner.
	next, before, after *edge
	// target is the hash of what the reference says besides the uid.
	target uint32
	// blocks is what the reference says, counts that it also can be to the owner, as far as is known where that is.
	blocks, counts bool
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{seed: maphash.MakeSeed(), objects: map[UID]entry{}, places: newPlaces()}
}

// hash is short for names that are compared often.
func (g *Graph) hash(words ...string) uint32 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	for _, w := range words {
		_, _ = h.WriteString(w) // it never fails
		_ = h.WriteByte(0)
	}
	return uint32(h.Sum64()) //nolint:gosec // the lower half is meant
}

// Get returns what is known of an object that a watch has shown.
func (g *Graph) Get(uid UID) (Object, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.objects[uid]
	if e.place == 0 {
		return Object{}, false
	}
	p := g.places.at(e.place)
	o := Object{Kind: p.kind, Namespace: p.namespace}
	if n := e.node; n != nil {
		o.Name, o.State, o.Owned, o.Owns = n.name, n.state, n.owners != nil, n.dependents != nil
	}
	return o, true
}

// Blocking returns how many references block the deletion of an owner. One from another namespace does not.
func (g *Graph) Blocking(uid UID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.objects[uid].node; n != nil {
		return int(n.blocking)
	}
	return 0
}

// Cycle says whether an object that waits in the foreground waits for itself, by way of others that wait.
func (g *Graph) Cycle(uid UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.objects[uid].node
	if n == nil {
		return false
	}
	seen := map[*node]struct{}{}
	for ahead := []*node{n}; len(ahead) > 0; {
		at := ahead[len(ahead)-1]
		ahead = ahead[:len(ahead)-1]
		for e := at.dependents; e != nil; e = e.after {
			d := e.dependent
			if !e.counts || d.state != Foreground {
				continue
			}
			if d == n {
				return true
			}
			if _, ok := seen[d]; !ok {
				seen[d] = struct{}{}
				ahead = append(ahead, d)
			}
		}
	}
	return false
}

// Len returns how many objects the graph knows, virtual ones included.
func (g *Graph) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.objects)
}

func (n *node) dependentUIDs(out []UID) []UID {
	for e := n.dependents; e != nil; e = e.after {
		out = append(out, e.dependent.uid)
	}
	return out
}

// Set notes that an object is there, as m says, and returns which objects to look at.
func (g *Graph) Set(kind *object.Kind, m *metav1.ObjectMeta) (look []UID) {
	uid, state := UIDOf(m.GetUid()), StateOf(m)
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.objects[uid]
	if e.place == 0 {
		e.place = g.places.take(kind, m.GetNamespace())
		e.name = g.hash(m.GetName())
		g.objects[uid] = e
		g.found(e)
	}
	refs := m.GetOwnerReferences()
	if e.node == nil {
		if len(refs) == 0 && state != Foreground && state != Orphaning {
			return nil
		}
		e.node = &node{uid: uid}
		g.objects[uid] = e
	}
	n := e.node
	if n.name == "" {
		n.name = strings.Clone(m.GetName()) // it outlives the object
	}
	was := n.state
	n.state = state
	look = g.name(n, e.place, refs, look)
	if was != state {
		switch state {
		case Foreground:
			look = n.dependentUIDs(append(look, uid))
		case Orphaning:
			look = append(look, uid)
		case Alive, Deleting:
		}
	}
	g.trim(uid)
	return look
}

// Delete notes that an object is gone, and returns which objects to look at.
func (g *Graph) Delete(uid UID) []UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.delete(uid)
}

func (g *Graph) delete(uid UID) (look []UID) {
	e := g.objects[uid]
	if e.place == 0 {
		return nil
	}
	g.places.drop(e.place)
	e.place, e.name = 0, 0
	g.objects[uid] = e
	if n := e.node; n != nil {
		n.name, n.state = "", Deleting
		look = g.name(n, 0, nil, n.dependentUIDs(nil))
	}
	g.trim(uid)
	return look
}

// Keep notes that of a kind there are no objects but those in seen, and returns which objects to look at.
func (g *Graph) Keep(kind *object.Kind, seen map[UID]struct{}) (look []UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var gone []UID
	for uid, e := range g.objects {
		if e.place == 0 || g.places.at(e.place).kind != kind {
			continue
		}
		if _, ok := seen[uid]; !ok {
			gone = append(gone, uid)
		}
	}
	for _, uid := range gone {
		look = append(look, g.delete(uid)...)
	}
	return look
}

// trim forgets a node without edges that waits for nothing, and an object that nothing is known of.
func (g *Graph) trim(uid UID) {
	e := g.objects[uid]
	if n := e.node; n != nil {
		if n.owners != nil || n.dependents != nil || e.place != 0 && (n.state == Foreground || n.state == Orphaning) {
			return
		}
		e.node = nil
		g.objects[uid] = e
	}
	if e.place == 0 {
		delete(g.objects, uid)
	}
}
