package resources

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// List holds amounts of resources.
//
// Invariant: it is sorted by name, and no name is there twice.
type List []Amount

// Amount is an amount of a resource. It is copied as a value: nobody changes the quantity in place.
type Amount struct {
	Name     string
	Quantity resource.Quantity
}

// ListOf reads a map of quantities, without those that cannot be read.
func ListOf(m map[string]*metav1.Quantity) List {
	if len(m) == 0 {
		return nil
	}
	return make(List, 0, len(m)).addAll(m)
}

// Map returns the amounts as objects have them; nil for none.
func (l List) Map() map[string]*metav1.Quantity {
	if len(l) == 0 {
		return nil
	}
	m := make(map[string]*metav1.Quantity, len(l))
	for _, a := range l {
		m[a.Name] = value.NewQuantity(a.Quantity)
	}
	return m
}

// Get returns the amount of a resource; ok is false when there is none.
func (l List) Get(name string) (q resource.Quantity, ok bool) {
	i, ok := l.find(name)
	if !ok {
		return resource.Quantity{}, false
	}
	return l[i].Quantity, true
}

// find returns where a name is, or belongs. Lists are short.
func (l List) find(name string) (i int, ok bool) {
	for i := range l {
		if l[i].Name >= name {
			return i, l[i].Name == name
		}
	}
	return len(l), false
}

// add returns the list with an amount added. Like all that follow it overwrites the list.
func (l List) add(a Amount) List {
	i, ok := l.find(a.Name)
	if !ok {
		return slices.Insert(l, i, a)
	}
	sum := l[i].Quantity.DeepCopy() // large ones are behind a pointer, which another list may share
	sum.Add(a.Quantity)
	l[i].Quantity = sum
	return l
}

// addAll adds what can be read of a map.
func (l List) addAll(m map[string]*metav1.Quantity) List {
	for name, text := range m {
		if q, err := value.Quantity(text); err == nil {
			l = l.add(Amount{name, q})
		}
	}
	return l
}

// put replaces an amount by one that can be read.
func (l List) put(name string, text *metav1.Quantity) List {
	q, err := value.Quantity(text)
	if err != nil {
		return l
	}
	i, ok := l.find(name)
	if !ok {
		return slices.Insert(l, i, Amount{name, q})
	}
	l[i].Quantity = q
	return l
}

// raise makes each amount at least as large as that in m.
func (l List) raise(m List) List {
	for _, a := range m {
		i, ok := l.find(a.Name)
		switch {
		case !ok:
			l = slices.Insert(l, i, a)
		case a.Quantity.Cmp(l[i].Quantity) > 0:
			l[i].Quantity = a.Quantity
		}
	}
	return l
}
