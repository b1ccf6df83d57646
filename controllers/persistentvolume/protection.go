package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
)

// unprotectClaim lets a claim that is to be deleted go once no pod uses it. Pods without a node do not: the scheduler
// places none whose claim is being deleted.
func (c *Controller) unprotectClaim(
	ctx context.Context, o *corev1.PersistentVolumeClaim,
) (again time.Duration, err error) {
	if !slices.Contains(o.GetMetadata().GetFinalizers(), storage.ClaimProtection) {
		return 0, nil
	}
	if slices.ContainsFunc(c.pods.ByIndex(controller.ByClaim, cache.KeyOf(o).String()), uses) {
		return 0, nil // the end of the pod will bring us here again
	}
	used, err := c.used(ctx, o)
	switch {
	case err != nil:
		return 0, err
	case used:
		return lookAgain, nil
	}
	next := object.Clone(o)
	next.Metadata.Finalizers = without(next.Metadata.Finalizers, storage.ClaimProtection)
	_, err = c.writeClaim(ctx, next)
	return 0, err
}

// pageSize is how many pods are read at once.
const pageSize = 500

// used asks the server whether a pod uses the claim: one that the cache has not seen yet may.
func (c *Controller) used(ctx context.Context, o *corev1.PersistentVolumeClaim) (bool, error) {
	m := o.GetMetadata()
	req := &metav1.ListRequest{Namespace: m.GetNamespace(), Limit: pageSize}
	for {
		l, err := c.cfg.Client.Pods.List(ctx, req)
		if err != nil {
			return false, fmt.Errorf("read the pods of namespace %s: %w", m.GetNamespace(), err)
		}
		for _, p := range l.GetItems() {
			if uses(p) && slices.Contains(storage.ClaimNames(p), m.GetName()) {
				return true, nil
			}
		}
		if req.Continue = l.GetMetadata().GetContinue(); req.Continue == "" {
			return false, nil
		}
	}
}

// unprotectVolume lets a volume that is to be deleted go once it is not bound, and no node has a directory of it.
func (c *Controller) unprotectVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	m := v.GetMetadata()
	if m.GetDeletionTimestamp() == nil || v.GetStatus().GetPhase() == bound || storage.LeftToNode(v) != "" ||
		!slices.Contains(m.GetFinalizers(), storage.VolumeProtection) {
		return nil
	}
	next := object.Clone(v)
	next.Metadata.Finalizers = without(next.Metadata.Finalizers, storage.VolumeProtection)
	_, err := c.cfg.Client.PersistentVolumes.Update(ctx, &corev1rpc.UpdatePersistentVolumeRequest{Object: next})
	return err
}

func without(list []string, text string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == text })
}
