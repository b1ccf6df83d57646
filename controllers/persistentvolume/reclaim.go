package persistentvolume

import (
	"context"
	"fmt"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/object/storage"
)

// release does with a volume whose claim is gone what its policy says. That it has failed before stays to be seen.
func (c *Controller) release(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if phase := v.GetStatus().GetPhase(); phase != released && phase != failed {
		next, err := c.volumePhase(ctx, v, released, "")
		if err != nil {
			return nil, err
		}
		v = next
	}
	switch v.GetSpec().GetPersistentVolumeReclaimPolicy() {
	case "Recycle":
		return c.fail(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	case "Delete":
		return c.deleteVolume(ctx, v)
	default:
		return v, nil
	}
}

// deleteVolume deletes a volume that we have made, and leaves it to its provisioner if that is another.
func (c *Controller) deleteVolume(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	by := v.GetMetadata().GetAnnotations()[storage.ProvisionedBy]
	switch {
	case storage.LeftToNode(v) != "":
		return v, nil // package localvolume deletes it when its directory is gone
	case by == storage.LocalProvisioner:
	case by != "" && !strings.HasPrefix(by, "kubernetes.io/"), by == "" &&
		v.GetSpec().GetPersistentVolumeSource().GetCsi() != nil:
		return v, nil
	default:
		return c.fail(ctx, v, "VolumeFailedDelete",
			fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched",
				v.GetMetadata().GetName()))
	}
	m := v.GetMetadata()
	if m.GetDeletionTimestamp() != nil {
		return v, nil
	}
	_, err := c.cfg.Client.PersistentVolumes.Delete(ctx, &metav1.DeleteRequest{
		Name: m.GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &m.Uid,
			ResourceVersion: &m.ResourceVersion}},
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	c.metrics.done("delete", err)
	if err != nil {
		return nil, fmt.Errorf("delete volume %s: %w", m.GetName(), err)
	}
	c.cfg.Logger.Info("deleted a volume whose claim is gone", "volume", m.GetName(), "uid", m.GetUid(), "claim",
		claimOf(v).String())
	return nil, nil
}

// fail marks a volume as Failed and says why, once.
func (c *Controller) fail(
	ctx context.Context, v *corev1.PersistentVolume, reason, message string,
) (*corev1.PersistentVolume, error) {
	if v.GetStatus().GetPhase() == failed {
		return v, nil
	}
	next, err := c.volumePhase(ctx, v, failed, message)
	if err == nil {
		c.events.Event(next, record.Warning, reason, "Reclaiming", message)
	}
	return next, err
}
