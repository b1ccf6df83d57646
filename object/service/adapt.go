package service

import (
	"context"
	"fmt"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// The functions below serve the standard methods of any kind from a backend. The generated adapters
// (corev1rpc.PodsBackend) call them with their own types, which gRPC wants.

// writeRequest is what the requests for creations and updates have in common.
type writeRequest[O any] interface {
	GetObject() O
	GetDryRun() []string
	GetFieldManager() string
	GetFieldValidation() string
}

// updateRequest is a request for an update.
type updateRequest[O any] interface {
	writeRequest[O]
	GetName() string
}

// Typed makes a backend's answer an object of the service's kind.
func Typed[O object.Object](o object.Object, err error) (O, error) {
	var none O
	if err != nil {
		return none, err
	}
	t, ok := o.(O)
	if !ok {
		return none, fmt.Errorf("backend answered with %T instead of %T", o, none)
	}
	return t, nil
}

// Listed makes a backend's answer the items of a list.
func Listed[O object.Object](found object.Items, err error) (*metav1.ListMeta, []O, error) {
	if err != nil {
		return nil, nil, err
	}
	items := make([]O, len(found.Objects))
	for i, o := range found.Objects {
		if items[i], err = Typed[O](o, nil); err != nil {
			return nil, nil, err
		}
	}
	return found.Meta, items, nil
}

// Create serves the method Create.
func Create[O object.Object](
	ctx context.Context, b object.Backend, kind *object.Kind, req writeRequest[O],
) (O, error) {
	return Typed[O](b.Create(ctx, namespaceOf(req), given(kind, req), options(req)))
}

// Update serves the method Update, and those for a part of the object.
func Update[O object.Object](
	ctx context.Context, b object.Backend, kind *object.Kind, subresource string, req updateRequest[O],
) (O, error) {
	return Typed[O](b.Update(ctx, namespaceOf(req), req.GetName(), subresource, given(kind, req), options(req)))
}

// Deleted makes the answer of a deletion a Status about the object.
func Deleted(kind *object.Kind, req *metav1.DeleteRequest, o object.Object, err error) (*metav1.Status, error) {
	if err != nil {
		return nil, err
	}
	var uid string
	if o != nil {
		uid = o.GetMetadata().GetUid()
	}
	return &metav1.Status{
		Status:  "Success",
		Details: &metav1.StatusDetails{Name: req.GetName(), Group: kind.Group, Kind: kind.Plural, Uid: uid},
	}, nil
}

// given returns the object of a request. An empty one stands for none: validation says what is missing.
func given[O object.Object](kind *object.Kind, req writeRequest[O]) object.Object {
	var none O
	// They are compared as interfaces: constraint comparable would have the compiler make this code anew for each kind.
	if o := object.Object(req.GetObject()); o != object.Object(none) {
		return o
	}
	return kind.New()
}

// namespaceOf returns the namespace of a request. Those for kinds without namespaces have none.
func namespaceOf(req any) string {
	if r, ok := req.(interface{ GetNamespace() string }); ok {
		return r.GetNamespace()
	}
	return ""
}

func options[O any](req writeRequest[O]) object.WriteOptions {
	return object.WriteOptions{
		DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation(),
	}
}
