package graph

import (
	"strings"

	"monoplane.dev/object"
)

// place is where objects of one kind and namespace are. Objects hold its number.
type place struct {
	kind      *object.Kind
	namespace string
	// objects is how many are there; a place without any is free.
	objects int
}

// places are numbered from 1.
type places struct {
	all  []place
	free []uint32
	find map[placeKey]uint32
}

type placeKey struct {
	kind      *object.Kind
	namespace string
}

func newPlaces() places { return places{all: make([]place, 1), find: map[placeKey]uint32{}} }

func (p *places) at(i uint32) place { return p.all[i] }

// take returns the number of a place, for one more object.
func (p *places) take(kind *object.Kind, namespace string) uint32 {
	i, ok := p.find[placeKey{kind, namespace}]
	if !ok {
		namespace = strings.Clone(namespace) // it outlives the object
		if n := len(p.free); n > 0 {
			i, p.free = p.free[n-1], p.free[:n-1]
		} else {
			i = uint32(len(p.all)) //nolint:gosec // not that many
			p.all = append(p.all, place{})
		}
		p.all[i] = place{kind: kind, namespace: namespace}
		p.find[placeKey{kind, namespace}] = i
	}
	p.all[i].objects++
	return i
}

// drop says that an object has left.
func (p *places) drop(i uint32) {
	at := &p.all[i]
	if at.objects--; at.objects > 0 {
		return
	}
	delete(p.find, placeKey{at.kind, at.namespace})
	*at = place{}
	p.free = append(p.free, i)
}
