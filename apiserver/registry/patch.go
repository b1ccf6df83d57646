package registry

import (
	"context"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/patch"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Patch changes an object by a patch document (OBJ-9). A patch that names a resourceVersion is refused when
// the object is at another; any other is applied to whatever the object has become.
func (r *Registry) Patch(ctx context.Context, subresource string, req *metav1.PatchRequest) (object.Object, error) {
	isApply := patch.Type(req.GetPatchType()) == patch.Apply
	causes := append(validation.WriteOptions(object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}), validation.PatchOptions(req, isApply)...)
	if len(causes) > 0 {
		return nil, validation.InvalidOptions("PatchOptions", causes)
	}
	if req.GetName() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "name is required")
	}
	if r.kind.Namespaced && req.GetNamespace() == "" {
		return nil, apierrors.New(apierrors.BadRequest, "an empty namespace may not be set for a namespaced resource")
	}
	if isApply {
		return r.apply(ctx, subresource, req)
	}
	p, err := patch.Parse(patch.Type(req.GetPatchType()), req.GetPatch())
	if err != nil {
		return nil, err
	}
	return r.update(ctx, change{
		namespace: req.GetNamespace(), name: req.GetName(), subresource: subresource,
		manager: req.GetFieldManager(), dryRun: dryRun(req.GetDryRun()),
		ask:    func(live object.Object) (object.Object, error) { return r.patched(ctx, p, live, subresource, req) },
		states: func(uid string) bool { return p.Carries(uid, "metadata", "uid") },
		patch:  true,
	})
}

// typed is what every generated object is.
type typed interface {
	object.Object
	codec.Typed
}

// patched returns the live object, or its part, as clients see it, with the patch applied.
func (r *Registry) patched(
	ctx context.Context, p *patch.Patch, live object.Object, subresource string, req *metav1.PatchRequest,
) (object.Object, error) {
	kind, schema, shown := r.kind, r.schema, r.viewed(live)
	if rules := r.strategy.Resources[subresource]; rules.Shape != nil {
		kind, schema, shown = rules.Shape.Kind, r.schemas[subresource], rules.shaped(shown)
	}
	before, ok := shown.(typed)
	if !ok {
		return nil, apierrors.New(apierrors.InternalError, "objects of kind %s cannot be patched", kind.Kind)
	}
	doc, err := p.Apply(codec.AppendObject(nil, before), schema)
	if err != nil {
		return nil, err
	}
	after := kind.New().(typed)
	strict, err := codec.DecodeObject(doc, after)
	if err != nil {
		// Not 400: kubectl edit lets the user mend what is invalid, and gives up on everything else.
		return nil, apierrors.NewInvalid(kind, live.GetMetadata().GetName(), []apierrors.Cause{{
			Type: "FieldValueInvalid", Field: "patch", Message: "Invalid value: " + err.Error(),
		}})
	}
	for _, path := range p.Duplicates() {
		strict = append(strict, `duplicate field "`+path+`"`)
	}
	if err := r.strictness(ctx, strict, req); err != nil {
		return nil, err
	}
	return after, nil
}

// strictness treats unknown and duplicate fields as the request wants; in a patch they are 422 (OBJ-3).
func (r *Registry) strictness(ctx context.Context, strict []string, req *metav1.PatchRequest) error {
	if len(strict) == 0 {
		return nil
	}
	switch req.GetFieldValidation() {
	case "Ignore":
	case "Strict":
		return apierrors.NewInvalid(r.kind, req.GetName(), []apierrors.Cause{{Type: "FieldValueInvalid", Field: "patch",
			Message: "Invalid value: strict decoding error: " + strings.Join(strict, ", ")}})
	default:
		for _, text := range strict {
			warning.Add(ctx, text)
		}
	}
	return nil
}
