package registry

import (
	"context"

	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Deprecated returns a backend that serves what b does, and tells everybody who asks it for anything, with text, that
// there is a better kind.
func Deprecated(b *Registry, text string) object.Backend { return deprecated{b, text} }

type deprecated struct {
	*Registry
	text string
}

// Get is that of the backend below, with the warning.
func (d deprecated) Get(ctx context.Context, req *metav1.GetRequest) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.Get(ctx, req)
}

// GetPart is that of the backend below, with the warning.
func (d deprecated) GetPart(ctx context.Context, subresource string, req *metav1.GetRequest) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.GetPart(ctx, subresource, req)
}

// List is that of the backend below, with the warning.
func (d deprecated) List(ctx context.Context, req *metav1.ListRequest) (object.Items, error) {
	warning.Add(ctx, d.text)
	return d.Registry.List(ctx, req)
}

// Watch is that of the backend below, with the warning, which is there before accept lets headers be sent.
func (d deprecated) Watch(
	ctx context.Context, req *metav1.WatchRequest, accept func() error, send func([]object.Event) error,
) error {
	warning.Add(ctx, d.text)
	return d.Registry.Watch(ctx, req, accept, send)
}

// Create is that of the backend below, with the warning.
func (d deprecated) Create(
	ctx context.Context, namespace string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.Create(ctx, namespace, o, opts)
}

// Update is that of the backend below, with the warning.
func (d deprecated) Update(
	ctx context.Context, namespace, name, subresource string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.Update(ctx, namespace, name, subresource, o, opts)
}

// Patch is that of the backend below, with the warning.
func (d deprecated) Patch(
	ctx context.Context, subresource string, req *metav1.PatchRequest,
) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.Patch(ctx, subresource, req)
}

// Delete is that of the backend below, with the warning.
func (d deprecated) Delete(ctx context.Context, req *metav1.DeleteRequest) (object.Object, error) {
	warning.Add(ctx, d.text)
	return d.Registry.Delete(ctx, req)
}

// DeleteCollection is that of the backend below, with the warning.
func (d deprecated) DeleteCollection(
	ctx context.Context, req *metav1.DeleteCollectionRequest,
) (object.Items, error) {
	warning.Add(ctx, d.text)
	return d.Registry.DeleteCollection(ctx, req)
}
