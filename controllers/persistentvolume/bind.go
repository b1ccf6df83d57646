package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
)

// bind writes both sides of a binding, as far as they are not written.
func (c *Controller) bind(
	ctx context.Context, v *corev1.PersistentVolume, o *corev1.PersistentVolumeClaim,
) (err error) {
	began := !storage.IsBound(o)
	defer func() {
		if began || err != nil {
			c.metrics.done("bind", err)
		}
	}()
	if next := storage.BoundVolume(v, o); next != v {
		if v, err = c.writeVolume(ctx, next); err != nil {
			return err
		}
	}
	if v, err = c.volumePhase(ctx, v, bound, ""); err != nil {
		return err
	}
	if name := v.GetMetadata().GetName(); o.GetSpec().GetVolumeName() != name || !storage.Has(o, storage.BindCompleted) {
		next := object.Clone(o)
		if o.GetSpec().GetVolumeName() != name {
			next.Spec.VolumeName = name
			storage.Annotate(next, storage.BoundByController, "yes")
		}
		storage.Annotate(next, storage.BindCompleted, "yes")
		if o, err = c.writeClaim(ctx, next); err != nil {
			return err
		}
	}
	_, err = c.claimStatus(ctx, o, bound, v)
	return err
}

// unbind gives a volume back whose claim took another one. What a user wrote stays but for the uid.
func (c *Controller) unbind(ctx context.Context, v *corev1.PersistentVolume) error {
	next := object.Clone(v)
	if storage.Has(v, storage.BoundByController) {
		next.Spec.ClaimRef = nil
		delete(next.Metadata.Annotations, storage.BoundByController)
	} else {
		next.Spec.ClaimRef.Uid = ""
	}
	next, err := c.writeVolume(ctx, next)
	if err == nil {
		_, err = c.volumePhase(ctx, next, available, "")
	}
	return err
}

// readVolume asks the server for a volume; nil when there is none.
func (c *Controller) readVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	v, err := c.cfg.Client.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the volume: %w", err)
	}
	return v, nil
}

// ownWrites bounds the wait for the cache to have what was written. Choices are made from the cache: without it a
// volume would be chosen twice, and the second write fail.
const ownWrites = 5 * time.Second

func (c *Controller) writeVolume(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	next, err := c.cfg.Client.PersistentVolumes.Update(ctx, &corev1rpc.UpdatePersistentVolumeRequest{Object: v})
	if err != nil {
		return nil, fmt.Errorf("write volume %s: %w", v.GetMetadata().GetName(), err)
	}
	return next, c.seen(ctx, c.volumes.WaitFor, next)
}

func (c *Controller) writeClaim(
	ctx context.Context, o *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	next, err := c.cfg.Client.PersistentVolumeClaims.Update(ctx, &corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o})
	if err != nil {
		return nil, fmt.Errorf("write the claim: %w", err)
	}
	return next, nil
}

func (c *Controller) seen(ctx context.Context, wait func(context.Context, string) error, o object.Object) error {
	ctx, cancel := context.WithTimeout(ctx, ownWrites)
	defer cancel()
	return wait(ctx, o.GetMetadata().GetResourceVersion())
}

// volumePhase writes the phase of a volume, if it is another one, and returns the volume as it is then.
func (c *Controller) volumePhase(
	ctx context.Context, v *corev1.PersistentVolume, phase, message string,
) (*corev1.PersistentVolume, error) {
	if v.GetStatus().GetPhase() == phase {
		return v, nil
	}
	next := object.Clone(v)
	if next.Status == nil {
		next.Status = &corev1.PersistentVolumeStatus{}
	}
	next.Status.Phase, next.Status.Message = phase, message
	next, err := c.cfg.Client.PersistentVolumes.UpdateStatus(ctx, &corev1rpc.UpdatePersistentVolumeRequest{Object: next})
	if err != nil {
		return nil, fmt.Errorf("write the phase of volume %s: %w", v.GetMetadata().GetName(), err)
	}
	return next, c.seen(ctx, c.volumes.WaitFor, next)
}

// claimStatus writes the status of a claim, if it is another one, with what its volume, which may be nil, has.
func (c *Controller) claimStatus(ctx context.Context, o *corev1.PersistentVolumeClaim, phase string,
	v *corev1.PersistentVolume,
) (*corev1.PersistentVolumeClaim, error) {
	s := object.Clone(o).GetStatus()
	if s == nil {
		s = &corev1.PersistentVolumeClaimStatus{}
	}
	was := o.GetStatus()
	if v == nil {
		s.AccessModes, s.Capacity = nil, nil
	} else {
		s.AccessModes = v.GetSpec().GetAccessModes()
		// The size of a bound claim that grows is not that of its volume for a while.
		if had, err := value.Quantity(was.GetCapacity()["storage"]); was.GetPhase() != phase {
			if size := storage.Size(v); err != nil || had.Cmp(size) != 0 {
				s.Capacity = v.GetSpec().GetCapacity()
			}
		}
	}
	s.Phase = phase
	if was.GetPhase() == phase && slices.Equal(was.GetAccessModes(), s.GetAccessModes()) &&
		len(was.GetCapacity()) == len(s.GetCapacity()) {
		return o, nil
	}
	next := object.Clone(o)
	next.Status = s
	next, err := c.cfg.Client.PersistentVolumeClaims.UpdateStatus(ctx,
		&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: next})
	if err != nil {
		return nil, fmt.Errorf("write the claim's status: %w", err)
	}
	return next, nil
}
