package patch

// mergeJSON applies a JSON Merge Patch: objects merge, null removes, everything else replaces. It may change
// doc, and shares nothing with change.
func mergeJSON(doc, change any) any {
	fields, ok := change.(map[string]any)
	if !ok {
		return clone(change)
	}
	target, ok := doc.(map[string]any)
	if !ok {
		target = make(map[string]any, len(fields))
	}
	for name, v := range fields {
		if v == nil {
			delete(target, name)
			continue
		}
		target[name] = mergeJSON(target[name], v)
	}
	return target
}
