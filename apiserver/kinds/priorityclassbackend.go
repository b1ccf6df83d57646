package kinds

import (
	"context"

	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// priorityClassBackend lets one write of classes happen at a time, each of which begins and ends with caches that have
// all writes before. So of two classes that are made the global default at once the second is seen to be the second,
// and a pod that is created after the answer meets the class as it was left (package priority).
type priorityClassBackend struct {
	*registry.Registry
	store *store.Store
	// turn is held by the write that is in progress.
	turn chan struct{}
}

func newPriorityClassBackend(r *registry.Registry, s *store.Store) *priorityClassBackend {
	return &priorityClassBackend{Registry: r, store: s, turn: make(chan struct{}, 1)}
}

// write calls f when it is its turn.
func (b *priorityClassBackend) write(ctx context.Context, f func() error) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := b.store.Revision(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	// What is written is written. When the caches cannot be waited for, the client does not wait any more either, or the
	// store is about to fail.
	_, _ = b.store.Revision(ctx)
	return nil
}

// Create stores a new class.
func (b *priorityClassBackend) Create(
	ctx context.Context, namespace string, o object.Object, opts object.WriteOptions,
) (made object.Object, err error) {
	err = b.write(ctx, func() error {
		made, err = b.Registry.Create(ctx, namespace, o, opts)
		return err
	})
	return made, err
}

// Update replaces a class.
func (b *priorityClassBackend) Update(
	ctx context.Context, namespace, name, subresource string, o object.Object, opts object.WriteOptions,
) (changed object.Object, err error) {
	err = b.write(ctx, func() error {
		changed, err = b.Registry.Update(ctx, namespace, name, subresource, o, opts)
		return err
	})
	return changed, err
}

// Patch changes a class.
func (b *priorityClassBackend) Patch(ctx context.Context, subresource string, req *metav1.PatchRequest) (changed object.Object, err error) {
	err = b.write(ctx, func() error {
		changed, err = b.Registry.Patch(ctx, subresource, req)
		return err
	})
	return changed, err
}

// Delete deletes a class.
func (b *priorityClassBackend) Delete(ctx context.Context, req *metav1.DeleteRequest) (left object.Object, err error) {
	err = b.write(ctx, func() error {
		left, err = b.Registry.Delete(ctx, req)
		return err
	})
	return left, err
}

// DeleteCollection deletes the classes that are selected.
func (b *priorityClassBackend) DeleteCollection(
	ctx context.Context, req *metav1.DeleteCollectionRequest,
) (deleted object.Items, err error) {
	err = b.write(ctx, func() error {
		deleted, err = b.Registry.DeleteCollection(ctx, req)
		return err
	})
	return deleted, err
}
