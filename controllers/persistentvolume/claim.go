package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/phase"
)

// The phases.
const (
	pending   = "Pending"
	bound     = "Bound"
	lost      = "Lost"
	available = "Available"
	released  = "Released"
	failed    = "Failed"
)

// claim brings a claim to where it should be.
func (c *Controller) claim(ctx context.Context, key cache.Key) (again time.Duration, err error) {
	o, err := c.readClaim(ctx, key)
	switch {
	case err != nil || o == nil:
		return 0, err
	case o.GetMetadata().GetDeletionTimestamp() != nil:
		return c.unprotectClaim(ctx, o)
	case storage.Has(o, storage.BindCompleted):
		if _, ok := c.volumes.Get("", o.GetSpec().GetVolumeName()); !ok && o.GetStatus().GetPhase() != lost {
			again = lookAgain
		}
		return again, c.boundClaim(ctx, o)
	case o.GetSpec().GetVolumeName() != "":
		return 0, c.requested(ctx, o)
	default:
		return 0, c.unboundClaim(ctx, o)
	}
}

// readClaim asks the server for a claim; nil when there is none.
func (c *Controller) readClaim(ctx context.Context, key cache.Key) (*corev1.PersistentVolumeClaim, error) {
	o, err := c.cfg.Client.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: key.Namespace, Name: key.Name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the claim: %w", err)
	}
	return o, nil
}

// unboundClaim finds a volume for a claim that will take any.
func (c *Controller) unboundClaim(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
	name := storage.ClassOfClaim(o)
	class, err := c.class(ctx, name)
	if err != nil {
		return err
	}
	waits := storage.Waits(class)
	if v := c.match(o, waits); v != nil {
		return c.bind(ctx, v, o)
	}
	if given, err := c.giveDefaultClass(ctx, o); given || err != nil {
		return err
	}
	switch {
	case waits && !storage.Has(o, storage.SelectedNode):
		c.waitsFor(o)
	case name != "":
		return c.provision(ctx, o, class)
	default:
		c.events.Event(o, record.Normal, "FailedBinding", "Binding",
			"no persistent volumes available for this claim and no storage class is set")
	}
	_, err = c.claimStatus(ctx, o, pending, nil)
	return err
}

// class returns a class, nil when there is none. Classes are watched apart from claims: one that is not known here is
// asked for, lest a claim that should wait for its first consumer be bound because it was seen before its class.
func (c *Controller) class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if name == "" {
		return nil, nil
	}
	if class, ok := c.classes.Get("", name); ok {
		return class, nil
	}
	class, err := c.cfg.Client.StorageClasses.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the class: %w", err)
	}
	return class, nil
}

// match returns the best volume for a claim: one that is meant for it; of the others that with the fewest access
// modes, and among those the smallest. When the claim waits for a consumer, only a volume that is meant for it: the
// scheduler chooses.
func (c *Controller) match(o *corev1.PersistentVolumeClaim, waits bool) *corev1.PersistentVolume {
	wish := storage.NewWish(o)
	var best *corev1.PersistentVolume
	for _, v := range c.volumes.List("", nil) {
		if !wish.Holds(v, storage.Size(v)) || !storage.HasModes(v, o) {
			continue
		}
		free := !waits && storage.ClassOfVolume(v) == wish.Class && wish.Free(v)
		if storage.Meant(v, o) || free {
			if best == nil || better(v, best, o) {
				best = v
			}
		}
	}
	return best
}

func better(a, b *corev1.PersistentVolume, o *corev1.PersistentVolumeClaim) bool {
	if m, n := storage.Meant(a, o), storage.Meant(b, o); m != n {
		return m
	}
	if m, n := len(a.GetSpec().GetAccessModes()), len(b.GetSpec().GetAccessModes()); m != n {
		return m < n
	}
	x, y := storage.Size(a), storage.Size(b)
	if d := x.Cmp(y); d != 0 {
		return d < 0
	}
	return a.GetMetadata().GetName() < b.GetMetadata().GetName()
}

// waitsFor says by event what a claim waits for.
func (c *Controller) waitsFor(o *corev1.PersistentVolumeClaim) {
	var pods []string
	for _, p := range c.pods.ByIndex(controller.ByClaim, cache.KeyOf(o).String()) {
		if p.GetSpec().GetNodeName() == "" && !phase.Terminal(p) {
			pods = append(pods, p.GetMetadata().GetName())
		}
	}
	slices.Sort(pods)
	switch len(pods) {
	case 0:
		c.events.Event(o, record.Normal, "WaitForFirstConsumer", "Binding",
			"waiting for first consumer to be created before binding")
	case 1:
		c.events.Event(o, record.Normal, "WaitForPodScheduled", "Binding", "waiting for pod "+pods[0]+" to be scheduled")
	default:
		c.events.Event(o, record.Normal, "WaitForPodScheduled", "Binding",
			"waiting for pods "+strings.Join(pods, ",")+" to be scheduled")
	}
}

// requested binds a claim whose user named the volume.
func (c *Controller) requested(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
	v, err := c.readVolume(ctx, o.GetSpec().GetVolumeName())
	if err != nil {
		return err
	}
	switch {
	case v == nil: // it may come
	case storage.Meant(v, o):
		return c.bind(ctx, v, o)
	case v.GetSpec().GetClaimRef() != nil:
		c.events.Event(o, record.Warning, "FailedBinding", "Binding",
			fmt.Sprintf("volume %q already bound to a different claim.", v.GetMetadata().GetName()))
	default:
		why := mismatch(v, o)
		if why == "" {
			return c.bind(ctx, v, o)
		}
		c.events.Event(o, record.Warning, "VolumeMismatch", "Binding",
			fmt.Sprintf("Cannot bind to requested volume %q: %s", v.GetMetadata().GetName(), why))
	}
	_, err = c.claimStatus(ctx, o, pending, nil)
	return err
}

// mismatch says why a volume does not do for a claim that names it; "" when it does.
func mismatch(v *corev1.PersistentVolume, o *corev1.PersistentVolumeClaim) string {
	size := storage.Size(v)
	switch {
	case v.GetMetadata().GetDeletionTimestamp() != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", v.GetMetadata().GetName())
	case size.Cmp(storage.Asked(o)) < 0:
		return "requested PV is too small"
	case storage.ClassOfVolume(v) != storage.ClassOfClaim(o):
		return "storageClassName does not match"
	case !storage.SameMode(v, o):
		return "incompatible volumeMode"
	case !storage.HasModes(v, o):
		return "incompatible accessMode"
	}
	return ""
}

// boundClaim finishes the binding of a claim, or notes that its volume is lost.
func (c *Controller) boundClaim(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
	name := o.GetSpec().GetVolumeName()
	if name == "" {
		return c.lose(ctx, o, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, err := c.readVolume(ctx, name)
	if err != nil {
		return err
	}
	switch ref := v.GetSpec().GetClaimRef(); {
	case v == nil:
		return c.lose(ctx, o, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case ref == nil || ref.GetUid() == o.GetMetadata().GetUid():
		return c.bind(ctx, v, o)
	default:
		return c.lose(ctx, o, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
}

func (c *Controller) lose(ctx context.Context, o *corev1.PersistentVolumeClaim, reason, message string) error {
	if o.GetStatus().GetPhase() == lost {
		return nil
	}
	next, err := c.claimStatus(ctx, o, lost, nil)
	if err == nil {
		c.events.Event(next, record.Warning, reason, "Binding", message)
	}
	return err
}

// giveDefaultClass gives a claim that names no class, and was created when there was no default one, that of today.
func (c *Controller) giveDefaultClass(ctx context.Context, o *corev1.PersistentVolumeClaim) (given bool, err error) {
	if storage.Has(o, storage.BetaClass) || o.GetSpec().StorageClassName != nil {
		return false, nil
	}
	name := c.defaultClass()
	if name == "" {
		return false, nil
	}
	next := object.Clone(o)
	next.Spec.StorageClassName = &name
	_, err = c.writeClaim(ctx, next)
	return true, err
}
