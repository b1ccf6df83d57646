package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// mergeList merges two lists that the schema says are merged: of objects by their merge key, of scalars as
// sets. The patch's elements come in the patch's order, the others keep their places around them.
func (m merger) mergeList(original, patch []any, f field) ([]any, error) {
	if len(original) == 0 && len(patch) == 0 {
		return original, nil
	}
	objects, err := ofObjects(original, patch)
	if err != nil {
		return nil, err
	}
	if !objects {
		return arrange(union(original, patch), patch, original, ""), nil
	}
	if f.mergeKey == "" {
		return nil, errors.New("cannot merge lists of objects without a merge key")
	}
	original, patch, replace, err := elementDirectives(original, patch, f.mergeKey)
	if err != nil {
		return nil, err
	}
	if replace {
		return patch, nil
	}
	order := slices.Clone(original)
	merged, places := original, newIndex(original, f.mergeKey)
	for _, e := range patch {
		p := e.(map[string]any)
		if _, ok := p[f.mergeKey]; !ok {
			return nil, noMergeKey(f.mergeKey)
		}
		i, ok := places.find(p, f.mergeKey)
		if !ok {
			dropNulls(p)
			dropDirectives(p)
			places.add(p, f.mergeKey, len(merged))
			merged = append(merged, p)
			continue
		}
		if merged[i], err = m.mergeMap(merged[i].(map[string]any), p, f.sub); err != nil {
			return nil, err
		}
	}
	return arrange(merged, patch, order, f.mergeKey), nil
}

// ofObjects says whether the lists hold objects; they must agree and hold neither lists nor a mixture.
func ofObjects(lists ...[]any) (bool, error) {
	objects, scalars := false, false
	for _, list := range lists {
		for _, e := range list {
			switch e.(type) {
			case map[string]any:
				objects = true
			case []any:
				return false, errors.New("lists of lists cannot be merged")
			case nil:
				return false, errors.New("a list to merge must not hold null")
			default:
				scalars = true
			}
		}
	}
	if objects && scalars {
		return false, errors.New("list element types are not identical")
	}
	return objects, nil
}

// elementDirectives carries out and removes the elements of a patch that hold $patch.
func elementDirectives(original, patch []any, mergeKey string) (o, p []any, replace bool, err error) {
	plain := make([]any, 0, len(patch))
	gone := index{}
	for _, e := range patch {
		element := e.(map[string]any)
		d, ok := element[directive]
		if !ok {
			plain = append(plain, e)
			continue
		}
		switch d {
		case "delete":
			if _, ok := element[mergeKey]; !ok {
				return nil, nil, false, noMergeKey(mergeKey)
			}
			gone.add(element, mergeKey, 0)
		case "replace":
			replace = true
		case "merge":
			return nil, nil, false, errors.New("merging lists cannot be specified in the patch")
		default:
			return nil, nil, false, fmt.Errorf("unknown patch type %v", d)
		}
	}
	original = slices.DeleteFunc(original, func(e any) bool { return gone.has(e, mergeKey) })
	return original, plain, replace, nil
}

func noMergeKey(mergeKey string) error {
	return fmt.Errorf("a map does not contain declared merge key: %s", mergeKey)
}

// union returns the scalars of both lists, each once.
func union(a, b []any) []any {
	out := make([]any, 0, len(a)+len(b))
	seen := index{}
	for _, list := range [][]any{a, b} {
		for _, e := range list {
			if seen.add(e, "", len(out)) {
				out = append(out, e)
			}
		}
	}
	return out
}

// ordered handles the lists for which the patch has $setElementOrder and removes them from the patch.
func (m merger) ordered(original, patch map[string]any, schema *Schema) error {
	for name, v := range patch {
		at, ok := strings.CutPrefix(name, setElementOrder)
		if !ok {
			continue
		}
		order, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%s must be a list", name)
		}
		delete(patch, name)
		f := schema.lookup(at)
		added, inPatch := patch[at]
		old, _ := original[at].([]any)
		var changes []any
		if inPatch {
			if changes, ok = added.([]any); !ok {
				// Null, or something that is no list: handled like any other field.
				continue
			}
			if err := agrees(changes, order, f.mergeKey); err != nil {
				return err
			}
			delete(patch, at)
		}
		if _, inOriginal := original[at]; !inOriginal && !inPatch {
			continue
		}
		merged, err := m.listWithOrder(old, changes, f)
		if err != nil {
			return err
		}
		original[at] = arrange(merged, order, old, f.mergeKey)
	}
	return nil
}

func (m merger) listWithOrder(old, changes []any, f field) ([]any, error) {
	switch {
	case changes == nil:
		return slices.Clone(old), nil
	case old == nil:
		dropNulls(changes)
		kept, _ := dropDirectives(changes)
		return kept.([]any), nil
	case !f.mergeLists:
		return changes, nil
	default:
		return m.mergeList(slices.Clone(old), changes, f)
	}
}

// agrees checks that a patch's elements are named by $setElementOrder, in the same order, those of one key as often.
// Elements that are deleted need not be.
func agrees(changes, order []any, mergeKey string) error {
	for _, e := range changes {
		if m, ok := e.(map[string]any); ok && m[directive] != nil {
			continue
		}
		key, ok := keyOf(e, mergeKey)
		at := slices.IndexFunc(order, func(o any) bool {
			k, known := keyOf(o, mergeKey)
			return known && k == key
		})
		if !ok || at < 0 {
			return fmt.Errorf("the order in the patch list does not match the %s list", setElementOrder)
		}
		order = order[at+1:]
	}
	return nil
}

// arrange sorts a merged list: elements that wanted names come in its order; each of the others is put before
// the first of them that follows it in the live list.
func arrange(merged, wanted, live []any, mergeKey string) []any {
	inWanted, inLive := newIndex(wanted, mergeKey), newIndex(live, mergeKey)
	var mine, others []any
	for _, e := range merged {
		if inWanted.has(e, mergeKey) {
			mine = append(mine, e)
		} else {
			others = append(others, e)
		}
	}
	inWanted.sort(mine, mergeKey)
	inLive.sort(others, mergeKey)

	out := make([]any, 0, len(merged))
	for len(mine) > 0 && len(others) > 0 {
		l, okL := inLive.find(others[0], mergeKey)
		r, okR := inLive.find(mine[0], mergeKey)
		if okL && okR && l < r {
			out, others = append(out, others[0]), others[1:]
		} else {
			out, mine = append(out, mine[0]), mine[1:]
		}
	}
	return append(append(out, mine...), others...)
}
