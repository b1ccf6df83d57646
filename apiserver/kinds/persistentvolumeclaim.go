package kinds

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

func (c Config) persistentVolumeClaim() definition {
	own := claims{c.Deps}
	return definition{strategy: registry.Typed[*corev1.PersistentVolumeClaim]{
		Kind:       corev1.PersistentVolumeClaimKind,
		Default:    defaults.PersistentVolumeClaim,
		DefaultNew: defaults.NewPersistentVolumeClaim,
		Admit:      own.defaultClass,
		Validate:   validation.PersistentVolumeClaim,
		Main: registry.TypedResource[*corev1.PersistentVolumeClaim]{
			Apply: func(asked, live *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
				next := &corev1.PersistentVolumeClaim{Metadata: metadata(asked, live), Spec: object.Clone(asked.GetSpec())}
				defaults.PersistentVolumeClaim(next)
				defaults.KeepClaimProtection(next, live)
				next.Status = live.Status
				return next
			},
			Authorize: own.mayGrow,
			Validate:  validation.PersistentVolumeClaimUpdate,
		},
		Subresources: map[string]registry.TypedResource[*corev1.PersistentVolumeClaim]{
			"status": {
				Apply: func(asked, live *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
					next := &corev1.PersistentVolumeClaim{Status: object.Clone(asked.GetStatus())}
					defaults.PersistentVolumeClaim(next)
					next.Spec = live.Spec
					return next
				},
				Validate: validation.PersistentVolumeClaimStatusUpdate,
			},
		},
		Fields: map[string]func(*corev1.PersistentVolumeClaim) string{
			"name": func(o *corev1.PersistentVolumeClaim) string { return o.GetMetadata().GetName() },
		},
		Table: columns[*corev1.PersistentVolumeClaim]{
			{"Status", "string", 0, "Whether the claim is bound.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				return storagePhase(o, o.GetStatus().GetPhase())
			}},
			{"Volume", "string", 0, "Volume that is bound.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				return o.GetSpec().GetVolumeName()
			}},
			{"Capacity", "string", 0, "Size of the volume.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				if o.GetSpec().GetVolumeName() == "" {
					return ""
				}
				return sizeText(o.GetStatus().GetCapacity())
			}},
			{"Access Modes", "string", 0, "Ways in which the volume can be mounted.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				if o.GetSpec().GetVolumeName() == "" {
					return ""
				}
				return shortModes(o.GetStatus().GetAccessModes())
			}},
			{"StorageClass", "string", 0, "Class of the volume.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				return storage.ClassOfClaim(o)
			}},
			{"VolumeAttributesClass", "string", 0, "Class of changeable attributes.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				return orUnset(o.GetSpec().GetVolumeAttributesClassName())
			}},
			age[*corev1.PersistentVolumeClaim](),
			{"VolumeMode", "string", 1, "Whether the volume holds files or is a device.", func(o *corev1.PersistentVolumeClaim, _ moment) any {
				return orUnset(o.GetSpec().GetVolumeMode())
			}},
		},
	}.Strategy()}
}

type claims struct {
	deps registry.Deps
}

// defaultClass gives a claim that names no class the default one. The classes are read as they are now, so that a class
// counts from the moment that its creation was answered.
func (c claims) defaultClass(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
	if storage.NamesClass(o) {
		return nil
	}
	all, err := c.deps.Store.List(ctx, storagev1.StorageClassKind, store.ListOptions{})
	if err != nil {
		return err
	}
	if name := storage.DefaultOf(all.Objects); name != "" {
		o.Spec.StorageClassName = &name
	}
	return nil
}

// mayGrow refuses that a bound claim asks for more, unless its class allows it. One that is not bound may not change at
// all, which validation says.
func (c claims) mayGrow(ctx context.Context, _ *registry.Update, next, live *corev1.PersistentVolumeClaim) error {
	if live.GetStatus().GetPhase() != "Bound" || !larger(next.GetSpec(), live.GetSpec()) {
		return nil
	}
	if name := storage.ClassOfClaim(live); name != "" && name == storage.ClassOfClaim(next) {
		class, err := c.deps.Store.Get(ctx, store.Key{Kind: storagev1.StorageClassKind, Name: name}, "")
		if err != nil && !apierrors.Is(err, apierrors.NotFound) {
			return err
		}
		if err == nil && class.(*storagev1.StorageClass).GetAllowVolumeExpansion() {
			warning.Add(ctx, "spec.resources.requests.storage: kept but has no effect in this version: nothing expands volumes")
			return nil
		}
	}
	return apierrors.NewForbidden(corev1.PersistentVolumeClaimKind, live.GetMetadata().GetName(),
		"only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}

// larger says whether next asks for more storage than live; not if either amount cannot be read, which is for validation
// to say.
func larger(next, live *corev1.PersistentVolumeClaimSpec) bool {
	now, errNow := value.Quantity(next.GetResources().GetRequests()["storage"])
	was, errWas := value.Quantity(live.GetResources().GetRequests()["storage"])
	return errNow == nil && errWas == nil && now.Cmp(was) > 0
}
