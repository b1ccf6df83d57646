package persistentvolume

import (
	"context"
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/object/storage"
)

// volume brings a volume to where it should be.
func (c *Controller) volume(ctx context.Context, name string) (again time.Duration, err error) {
	v, err := c.readVolume(ctx, name)
	if err != nil || v == nil {
		return 0, err
	}
	if v, err = c.syncVolume(ctx, v); err != nil || v == nil {
		return 0, err
	}
	uid, phase := v.GetSpec().GetClaimRef().GetUid(), v.GetStatus().GetPhase()
	if o, ok := c.claims.Get(claimOf(v).Namespace, claimOf(v).Name); uid != "" && phase != released && phase != failed &&
		(!ok || o.GetMetadata().GetUid() != uid) {
		again = lookAgain
	}
	return again, c.unprotectVolume(ctx, v)
}

// syncVolume returns the volume as it is then; nil when it is gone, or is to be looked at again.
func (c *Controller) syncVolume(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	ref := v.GetSpec().GetClaimRef()
	if ref.GetUid() == "" { // free, or set aside for a claim that has not taken it
		return c.volumePhase(ctx, v, available, "")
	}
	key := claimOf(v)
	o, err := c.readClaim(ctx, key)
	if err != nil {
		return nil, err
	}
	switch name := o.GetSpec().GetVolumeName(); {
	case o == nil || o.GetMetadata().GetUid() != ref.GetUid():
		return c.release(ctx, v)
	case name == v.GetMetadata().GetName():
		return c.volumePhase(ctx, v, bound, "")
	case name == "" && v.GetMetadata().GetDeletionTimestamp() != nil:
		return nil, c.unbind(ctx, v) // the claim does not take it any more
	case name == "":
		c.halfBound(v, o)
		return v, nil
	case storage.Has(v, storage.ProvisionedBy) && v.GetSpec().GetPersistentVolumeReclaimPolicy() == "Delete":
		return c.release(ctx, v) // it was made for this claim, and nobody else would take it
	default:
		return nil, c.unbind(ctx, v)
	}
}

// halfBound leaves the other half of a binding to the claim.
func (c *Controller) halfBound(v *corev1.PersistentVolume, o *corev1.PersistentVolumeClaim) {
	if storage.SameMode(v, o) {
		c.enqueue(cache.KeyOf(o))
		return
	}
	c.events.Event(v, record.Warning, "VolumeMismatch", "Binding",
		fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.",
			o.GetMetadata().GetName()))
	c.events.Event(o, record.Warning, "VolumeMismatch", "Binding",
		fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.",
			v.GetMetadata().GetName()))
}
