package admission

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/object"
	"monoplane.dev/rules/semantic"
)

// byNamespace has the objects of a kind by their namespace, and in the order of their names. Whoever changes it makes
// a new map: rules change seldom, and are asked for at every write.
type byNamespace[T object.Object] struct {
	// same says whether a change leaves what an object is about.
	same func(a, b T) bool
	all  atomic.Pointer[map[string][]T]
}

// of returns the objects of a namespace. The list stays the same while no object changes what it is about.
func (b *byNamespace[T]) of(namespace string) []T {
	all := b.all.Load()
	if all == nil {
		return nil
	}
	return (*all)[namespace]
}

// changed is told of changes, one at a time.
func (b *byNamespace[T]) changed(was, is object.Object) {
	before, _ := was.(T)
	after, _ := is.(T)
	if was != nil && is != nil && b.same(before, after) {
		return
	}
	o := is
	if o == nil {
		o = was
	}
	m := o.GetMetadata()
	next := map[string][]T{}
	if all := b.all.Load(); all != nil {
		next = maps.Clone(*all)
	}
	list := slices.DeleteFunc(slices.Clone(next[m.GetNamespace()]), func(t T) bool {
		return t.GetMetadata().GetName() == m.GetName()
	})
	if is != nil {
		list = append(list, after)
		slices.SortFunc(list, func(x, y T) int {
			return strings.Compare(x.GetMetadata().GetName(), y.GetMetadata().GetName())
		})
	}
	if next[m.GetNamespace()] = list; len(list) == 0 {
		delete(next, m.GetNamespace())
	}
	b.all.Store(&next)
}

func equal(a, b proto.Message) bool { return semantic.Equal(a, b) }
