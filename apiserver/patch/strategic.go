package patch

import (
	"fmt"
	"slices"
	"strings"
)

// Directives are fields of a strategic patch that are not fields of the object.
const (
	directive       = "$patch"
	retainKeys      = "$retainKeys"
	setElementOrder = "$setElementOrder/"
	deleteFromList  = "$deleteFromPrimitiveList/"
)

// merger applies a strategic merge patch to trees, which it may change.
type merger struct{}

// mergeMap merges a patch into an object. Precedence within one object: $patch, $retainKeys, lists with
// $setElementOrder, deletions from lists of scalars, fields.
func (m merger) mergeMap(original, patch map[string]any, schema *Schema) (map[string]any, error) {
	if d, ok := patch[directive]; ok {
		switch d {
		case "replace":
			delete(patch, directive)
			return patch, nil
		case "delete":
			return map[string]any{}, nil
		default:
			return nil, fmt.Errorf("unknown patch type %v", d)
		}
	}
	if original == nil {
		original = map[string]any{}
	}
	if err := retain(original, patch); err != nil {
		return nil, err
	}
	if err := m.ordered(original, patch, schema); err != nil {
		return nil, err
	}
	if err := deletions(original, patch); err != nil {
		return nil, err
	}
	for name, v := range patch {
		if err := m.mergeField(original, name, v, schema.lookup(name)); err != nil {
			return nil, err
		}
	}
	return original, nil
}

func (m merger) mergeField(original map[string]any, name string, v any, f field) error {
	if v == nil {
		delete(original, name)
		return nil
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		if old, ok := original[name].(map[string]any); ok && !f.replaceMaps {
			original[name], err = m.mergeMap(old, v, f.sub)
			return err
		} else if ok {
			original[name] = v
			return nil
		}
	case []any:
		if old, ok := original[name].([]any); ok {
			if !f.mergeLists {
				dropNulls(v)
				original[name] = v
				return nil
			}
			original[name], err = m.mergeList(old, v, f)
			return err
		}
	}
	dropNulls(v)
	if kept, ok := dropDirectives(v); ok {
		original[name] = kept
	}
	return nil
}

// retain handles $retainKeys: the fields of the object that the list does not name are removed. The list must
// name every field that the patch sets.
func retain(original, patch map[string]any) error {
	v, ok := patch[retainKeys]
	if !ok {
		return nil
	}
	delete(patch, retainKeys)
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%s must be a list", retainKeys)
	}
	keep := make(map[string]bool, len(list))
	for _, name := range list {
		s, ok := name.(string)
		if !ok {
			return fmt.Errorf("%s must hold field names", retainKeys)
		}
		keep[s] = true
	}
	for name, v := range patch {
		if v != nil && !keep[name] && !strings.HasPrefix(name, setElementOrder) && !strings.HasPrefix(name, deleteFromList) {
			return fmt.Errorf("%s does not name %q, which the patch sets", retainKeys, name)
		}
	}
	for name := range original {
		if !keep[name] {
			delete(original, name)
		}
	}
	return nil
}

// deletions handles $deleteFromPrimitiveList.
func deletions(original, patch map[string]any) error {
	for name, v := range patch {
		at, ok := strings.CutPrefix(name, deleteFromList)
		if !ok {
			continue
		}
		delete(patch, name)
		gone, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%s must be a list", name)
		}
		old, ok := original[at].([]any)
		if !ok {
			continue
		}
		known := newIndex(gone, "")
		original[at] = slices.DeleteFunc(old, func(e any) bool { return known.has(e, "") })
	}
	return nil
}

// dropNulls removes null fields from what a patch adds: null means "not there".
func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, f := range v {
			if f == nil {
				delete(v, name)
			} else {
				dropNulls(f)
			}
		}
	case []any:
		for _, e := range v {
			dropNulls(e)
		}
	}
}

// dropDirectives removes directives from what a patch adds; ok is false when that is nothing at all.
func dropDirectives(v any) (kept any, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		if v[directive] == "delete" {
			return nil, false
		}
		for name, f := range v {
			if name == directive || name == retainKeys || strings.HasPrefix(name, setElementOrder) ||
				strings.HasPrefix(name, deleteFromList) {
				delete(v, name)
				continue
			}
			if f, ok := dropDirectives(f); ok {
				v[name] = f
			} else {
				delete(v, name)
			}
		}
		return v, true
	case []any:
		list := v[:0]
		for _, e := range v {
			if m, ok := e.(map[string]any); ok && m[directive] != nil {
				continue // an element that holds a directive is nothing else
			}
			if e, ok := dropDirectives(e); ok {
				list = append(list, e)
			}
		}
		return list, true
	default:
		return v, true
	}
}
