package graph

import (
	metav1 "monoplane.dev/api/meta/v1"
)

// name makes n, which is at place, name the owners in refs and no others. It adds to look what is to be looked at: n
// itself when a reference may be to something that is not there or that waits for n, and has come, or has lost one
// beside it that may have kept n; and owners that n has kept waiting, or keeps waiting now.
func (g *Graph) name(n *node, place uint32, refs []*metav1.OwnerReference, look []UID) []UID {
	if g.names(n, refs) {
		return look
	}
	old := n.owners
	n.owners = nil
	kept := 0
	come, stayed := false, false // whether there is doubt about a reference that has come, about one that has stayed
	for _, ref := range refs {
		e := g.link(n, place, ref)
		known := false
		for o := old; o != nil; o = o.next {
			known = known || o.owner == e.owner && o.target == e.target
		}
		if known {
			kept++
			stayed = stayed || !g.certain(e, place, ref)
			continue
		}
		come = come || !g.certain(e, place, ref)
		if e.owner.state == Orphaning {
			look = append(look, e.owner.uid)
		}
	}
	for o := old; o != nil; o = o.next {
		o.unlink()
		kept--
	}
	for o := old; o != nil; o = o.next {
		owner := o.owner
		switch {
		case owner.state == Foreground && o.counts && owner.blocking == 0:
			look = append(look, owner.uid)
		case owner.state == Orphaning && owner.dependents == nil:
			look = append(look, owner.uid)
		}
		if owner != n {
			g.trim(owner.uid)
		}
	}
	if come || stayed && kept < 0 {
		look = append(look, n.uid)
	}
	return look
}

// names says whether n names just the owners in refs already.
func (g *Graph) names(n *node, refs []*metav1.OwnerReference) bool {
	e := n.owners
	for i := len(refs) - 1; i >= 0; i-- { // edges stand in the reverse order
		ref := refs[i]
		if e == nil || e.blocks != ref.GetBlockOwnerDeletion() || e.target != g.target(ref) ||
			e.owner.uid != UIDOf(ref.GetUid()) {
			return false
		}
		e = e.next
	}
	return e == nil
}

func (g *Graph) target(ref *metav1.OwnerReference) uint32 {
	return g.hash(ref.GetApiVersion(), ref.GetKind(), ref.GetName())
}

// certain says whether a new edge is to an object that was seen where the reference says, and does not wait.
func (g *Graph) certain(e *edge, place uint32, ref *metav1.OwnerReference) bool {
	owner := g.objects[e.owner.uid]
	if owner.place == 0 || owner.name != g.hash(ref.GetName()) || e.owner.state == Foreground {
		return false
	}
	kind := g.places.at(owner.place).kind
	return kind.Kind == ref.GetKind() && kind.APIVersion() == ref.GetApiVersion() && g.reaches(place, owner.place)
}

// reaches says whether an object in one place can have an owner in another.
func (g *Graph) reaches(from, to uint32) bool {
	namespace := g.places.at(to).namespace
	return namespace == "" || namespace == g.places.at(from).namespace
}

// found has the references to an owner that was virtual until now count no more that cannot be to it.
func (g *Graph) found(owner entry) {
	if owner.node == nil {
		return
	}
	for e := owner.node.dependents; e != nil; e = e.after {
		if e.counts && !g.reaches(g.objects[e.dependent.uid].place, owner.place) {
			e.counts = false
			owner.node.blocking--
		}
	}
}

// link adds the edge of a reference.
func (g *Graph) link(n *node, place uint32, ref *metav1.OwnerReference) *edge {
	uid := UIDOf(ref.GetUid())
	owner := g.objects[uid]
	if owner.node == nil {
		owner.node = &node{uid: uid}
		g.objects[uid] = owner
	}
	o := owner.node
	e := &edge{owner: o, dependent: n, next: n.owners, after: o.dependents, target: g.target(ref),
		blocks: ref.GetBlockOwnerDeletion()}
	if o.dependents != nil {
		o.dependents.before = e
	}
	o.dependents, n.owners = e, e
	if e.blocks && (owner.place == 0 || g.reaches(place, owner.place)) {
		e.counts = true
		o.blocking++
	}
	return e
}

// unlink takes the edge from those of its owner.
func (e *edge) unlink() {
	if e.before == nil {
		e.owner.dependents = e.after
	} else {
		e.before.after = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	}
	if e.counts {
		e.owner.blocking--
	}
}
