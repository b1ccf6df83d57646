package fake

import (
	"context"
	"encoding/json"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	codec "monoplane.dev/codec/json"
	"monoplane.dev/object"
)

// Patch applies merge patches, and of strategic merge patches what components use: lists of things with a type, such as
// conditions, are merged by it, other lists replaced.
func (b *backend) Patch(_ context.Context, subresource string, req *metav1.PatchRequest) (object.Object, error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	old, err := b.find(req.GetNamespace(), req.GetName())
	if err != nil {
		return nil, err
	}
	var doc, patch map[string]any
	if err := json.Unmarshal(req.GetPatch(), &patch); err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "%v", err)
	}
	if err := json.Unmarshal(old.AppendJSON(nil), &doc); err != nil {
		return nil, err
	}
	strategic := req.GetPatchType() == "application/strategic-merge-patch+json"
	if !strategic && req.GetPatchType() != "application/merge-patch+json" {
		return nil, apierrors.New(apierrors.UnsupportedMediaType, "patch type %q", req.GetPatchType())
	}
	data, err := json.Marshal(merge(doc, patch, strategic))
	if err != nil {
		return nil, err
	}
	o := b.kind.New()
	d := codec.NewDecoder(data)
	o.DecodeJSON(d)
	d.End()
	if err := d.Err(); err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "%v", err)
	}
	return b.update(req.GetNamespace(), req.GetName(), subresource, o)
}

func merge(doc, patch map[string]any, strategic bool) map[string]any {
	if doc == nil {
		doc = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(doc, k)
		case map[string]any:
			sub, _ := doc[k].(map[string]any)
			doc[k] = merge(sub, v, strategic)
		case []any:
			if old, ok := doc[k].([]any); ok && strategic && k == "conditions" {
				doc[k] = mergeByType(old, v)
			} else {
				doc[k] = v
			}
		default:
			doc[k] = v
		}
	}
	return doc
}

func mergeByType(old, patch []any) []any {
	for _, p := range patch {
		pm, _ := p.(map[string]any)
		found := false
		for i, o := range old {
			if om, _ := o.(map[string]any); om["type"] == pm["type"] {
				old[i] = merge(om, pm, true)
				found = true
			}
		}
		if !found {
			old = append(old, p)
		}
	}
	return old
}
