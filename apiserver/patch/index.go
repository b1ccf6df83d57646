package patch

import (
	"cmp"
	"encoding/json"
	"slices"
)

// index finds elements of a list by their key, so that merging stays linear however long the lists are. Of
// elements with one key it knows the first.
type index map[any]int

func newIndex(list []any, mergeKey string) index {
	x := make(index, len(list))
	for i, e := range list {
		x.add(e, mergeKey, i)
	}
	return x
}

// add records the place of an element; false when it has no key or its key is known already.
func (x index) add(e any, mergeKey string, place int) bool {
	key, ok := keyOf(e, mergeKey)
	if !ok {
		return false
	}
	if _, known := x[key]; known {
		return false
	}
	x[key] = place
	return true
}

func (x index) find(e any, mergeKey string) (place int, ok bool) {
	key, ok := keyOf(e, mergeKey)
	if !ok {
		return 0, false
	}
	place, ok = x[key]
	return place, ok
}

func (x index) has(e any, mergeKey string) bool {
	_, ok := x.find(e, mergeKey)
	return ok
}

// sort brings elements into the order of the index; those that it does not know come first.
func (x index) sort(list []any, mergeKey string) {
	place := func(e any) int {
		if i, ok := x.find(e, mergeKey); ok {
			return i
		}
		return -1
	}
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(place(a), place(b)) })
}

// keyOf returns what identifies an element: the scalar itself, or with a merge key the scalar in that field.
// Numbers that are equal have equal keys however they are written.
func keyOf(e any, mergeKey string) (key any, ok bool) {
	if mergeKey != "" {
		m, _ := e.(map[string]any)
		if e, ok = m[mergeKey]; !ok {
			return nil, false
		}
	}
	switch e := e.(type) {
	case map[string]any, []any:
		return nil, false
	case json.Number:
		if i, err := e.Int64(); err == nil {
			return i, true
		}
		f, err := e.Float64()
		if i := int64(f); err == nil && float64(i) == f {
			return i, true
		}
		return f, true
	default:
		return e, true
	}
}
