// Package sliceset carries out what was decided about the EndpointSlices of one service.
package sliceset

import (
	"context"
	"fmt"

	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
)

// Writer writes slices.
type Writer struct {
	// Client writes them.
	Client *client.Client
	// Cache has them.
	Cache *cache.Cache[*discoveryv1.EndpointSlice]
	// Manager is what they are written as.
	Manager string
}

// Write makes, changes (of the revision that they have) and removes slices of a namespace, and waits until the cache
// has what was written, so that whoever judges them next judges by it. Where a namespace is about to go it makes
// nothing.
func (w Writer) Write(
	ctx context.Context, namespace string, create, update, remove []*discoveryv1.EndpointSlice,
) error {
	api, revision := w.Client.EndpointSlices, ""
	for _, s := range create {
		out, err := api.Create(ctx, &discoveryv1rpc.CreateEndpointSliceRequest{
			Namespace: namespace, Object: s, FieldManager: w.Manager,
		})
		if err != nil && apierrors.NamespaceGoes(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("create a slice: %w", err)
		}
		revision = out.GetMetadata().GetResourceVersion()
	}
	for _, s := range update {
		name := s.GetMetadata().GetName()
		out, err := api.Update(ctx, &discoveryv1rpc.UpdateEndpointSliceRequest{
			Namespace: namespace, Name: name, Object: s, FieldManager: w.Manager,
		})
		if err != nil {
			return fmt.Errorf("update slice %s: %w", name, err)
		}
		revision = out.GetMetadata().GetResourceVersion()
	}
	for _, s := range remove {
		name, uid := s.GetMetadata().GetName(), s.GetMetadata().GetUid()
		_, err := api.Delete(ctx, &metav1.DeleteRequest{
			Namespace: namespace, Name: name,
			Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
		})
		if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
			return fmt.Errorf("delete slice %s: %w", name, err)
		}
	}
	if revision == "" {
		return nil
	}
	return w.Cache.WaitFor(ctx, revision)
}
