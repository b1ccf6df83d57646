package registry

import (
	"context"
	"maps"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fieldmanager"
	"monoplane.dev/apiserver/patch"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/apiserver/yaml"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// applyAttempts is how often an apply finds an object that is gone when it is to be changed, or there when it is to be
// made, before it gives up.
const applyAttempts = 8

// apply merges what the request describes into an object, or makes it (OBJ-9).
func (r *Registry) apply(ctx context.Context, subresource string, req *metav1.PatchRequest) (object.Object, error) {
	config, err := r.config(ctx, subresource, req)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		var after []*metav1.ManagedFieldsEntry
		out, err := r.update(ctx, change{
			namespace: req.GetNamespace(), name: req.GetName(), subresource: subresource,
			manager: req.GetFieldManager(), dryRun: dryRun(req.GetDryRun()), applied: &after,
			ask: func(live object.Object) (object.Object, error) {
				asked, entries, err := r.applied(ctx, live, config, subresource, req)
				after = entries
				return asked, err
			},
			states: func(uid string) bool { return stated(config, "uid") == uid },
			patch:  true,
		})
		if subresource != "" || !apierrors.Is(err, apierrors.NotFound) {
			return out, err
		}
		out, made := r.applyNew(ctx, config, req)
		if !apierrors.Is(made, apierrors.AlreadyExists) || attempt == applyAttempts {
			return out, made
		}
	}
}

// config reads what the request applies, in terms of the object as the client sees it: of one with a shape of its own
// only the part that the shape shows.
func (r *Registry) config(ctx context.Context, subresource string, req *metav1.PatchRequest) (map[string]any, error) {
	if len(req.GetPatch()) > patch.MaxBytes {
		return nil, apierrors.New(apierrors.RequestEntityTooLarge, "the patch is larger than %d bytes", patch.MaxBytes)
	}
	doc, duplicates, err := yaml.ToJSON(req.GetPatch())
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "error decoding YAML: %v", err)
	}
	if len(duplicates) > 0 {
		switch req.GetFieldValidation() {
		case "Ignore":
		case "Strict":
			return nil, apierrors.New(apierrors.BadRequest, "error strict decoding YAML: %s", strings.Join(duplicates, ", "))
		default:
			for _, text := range duplicates {
				warning.Add(ctx, text)
			}
		}
	}
	rules, ok := r.strategy.Resources[subresource]
	if !ok {
		return nil, noSuchResource()
	}
	kind := r.kind
	if rules.Shape != nil {
		kind = rules.Shape.Kind
	}
	config, err := fieldmanager.Parse(kind, doc)
	if err != nil || rules.Shape == nil {
		return config, err
	}
	config = maps.Clone(config)
	config["apiVersion"], config["kind"] = r.strategy.Kind.APIVersion(), r.strategy.Kind.Kind
	delete(config, "status")
	return config, nil
}

// stated returns what the request itself says in a field of the metadata; empty for nothing.
func stated(config map[string]any, name string) string {
	m, _ := config["metadata"].(map[string]any)
	s, _ := m[name].(string)
	return s
}

// applied returns the live object, or its part, as config leaves it, and who owns its fields then. Live is nil for a
// new object.
func (r *Registry) applied(
	ctx context.Context, live object.Object, config map[string]any, subresource string, req *metav1.PatchRequest,
) (object.Object, []*metav1.ManagedFieldsEntry, error) {
	before := r.kind.New()
	if live != nil {
		stored := object.Shallow(live)
		m := live.GetMetadata().Shallow()
		m.ManagedFields = nil
		stored.SetMetadata(m)
		before = r.viewed(stored)
	}
	doc := codec.AppendObject(nil, before.(typed))
	w := r.write(ctx, req.GetFieldManager(), subresource)
	if subresource != "" {
		w.Skip = []string{"metadata"}
	}
	if subresource == "status" {
		w.Skip = append(w.Skip, "spec")
	}
	out, err := r.owners.Apply(live, doc, config, w, req.GetForce())
	if err != nil {
		return nil, nil, err
	}
	after := r.kind.New().(typed)
	if _, err := codec.DecodeObject(out.Object, after); err != nil {
		return nil, nil, apierrors.New(apierrors.BadRequest, "the applied object is not a valid %s: %v", r.kind.Kind, err)
	}
	return r.strategy.Resources[subresource].shaped(after), out.Entries, nil
}

// applyNew makes an object that is applied and is not there.
func (r *Registry) applyNew(
	ctx context.Context, config map[string]any, req *metav1.PatchRequest,
) (object.Object, error) {
	if uid := stated(config, "uid"); uid != "" {
		return nil, apierrors.NewConflict(r.kind, req.GetName(),
			"uid mismatch: the provided object specified uid %s, and no existing object was found", uid)
	}
	if revision := stated(config, "resourceVersion"); revision != "" {
		return nil, r.modified(req.GetName())
	}
	if stated(config, "name") == "" {
		return nil, apierrors.NewInvalid(r.kind, "", []apierrors.Cause{{Type: "FieldValueRequired",
			Field: "metadata.name", Message: "Required value: name is required: what is applied cannot have a generated one"}})
	}
	asked, entries, err := r.applied(ctx, nil, config, "", req)
	if err != nil {
		return nil, err
	}
	m := meta(asked)
	if err := r.place(m, req.GetNamespace(), req.GetName()); err != nil {
		return nil, err
	}
	return r.createElse(ctx, req.GetNamespace(), asked, object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}, &entries)
}

// createElse is create for requests of other verbs, whoever sends which must have the right to create as well.
func (r *Registry) createElse(
	ctx context.Context, namespace string, o object.Object, opts object.WriteOptions,
	applied *[]*metav1.ManagedFieldsEntry,
) (object.Object, error) {
	if r.deps.MayCreate != nil {
		if err := r.deps.MayCreate(ctx, r.strategy.Kind, namespace, meta(o).Name); err != nil {
			return nil, err
		}
	}
	out, err := r.create(ctx, namespace, o, opts, applied)
	if err == nil {
		// An error here means that nobody asks by gRPC.
		_ = grpc.SetHeader(ctx, metadata.Pairs(fieldmanager.MadeKey, "true"))
	}
	return out, err
}

// unchanged returns the entries of live when after says nothing new: an apply that changes nothing is not written
// again for the sake of its time.
func unchanged(live, next object.Object, after []*metav1.ManagedFieldsEntry) []*metav1.ManagedFieldsEntry {
	before := live.GetMetadata().GetManagedFields()
	if !fieldmanager.SameButTime(before, after) {
		return after
	}
	m := meta(next)
	m.ManagedFields = before
	if validation.Equal(next, live) {
		return before
	}
	return after
}
