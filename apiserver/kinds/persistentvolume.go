package kinds

import (
	"k8s.io/utils/clock"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
)

func (c Config) persistentVolume() definition {
	return definition{strategy: registry.Typed[*corev1.PersistentVolume]{
		Kind:       corev1.PersistentVolumeKind,
		Default:    defaults.PersistentVolume,
		DefaultNew: defaults.NewPersistentVolume,
		Validate:   validation.PersistentVolume,
		Main: registry.TypedResource[*corev1.PersistentVolume]{
			Apply: func(asked, live *corev1.PersistentVolume) *corev1.PersistentVolume {
				next := &corev1.PersistentVolume{Metadata: metadata(asked, live), Spec: object.Clone(asked.GetSpec())}
				defaults.PersistentVolume(next)
				defaults.KeepVolumeProtection(next, live)
				next.Status = live.Status
				return next
			},
			Validate: validation.PersistentVolumeUpdate,
		},
		Subresources: map[string]registry.TypedResource[*corev1.PersistentVolume]{
			"status": {
				Apply: func(asked, live *corev1.PersistentVolume) *corev1.PersistentVolume {
					next := &corev1.PersistentVolume{Status: object.Clone(asked.GetStatus())}
					defaults.PersistentVolume(next)
					next.Spec = live.Spec
					stampPhase(c.Deps.Clock, next.Status, live.GetStatus())
					return next
				},
				Validate: validation.PersistentVolumeStatusUpdate,
			},
		},
		Fields: map[string]func(*corev1.PersistentVolume) string{
			"name": func(o *corev1.PersistentVolume) string { return o.GetMetadata().GetName() },
		},
		Table: columns[*corev1.PersistentVolume]{
			{"Capacity", "string", 0, "Size.", func(o *corev1.PersistentVolume, _ moment) any {
				return sizeText(o.GetSpec().GetCapacity())
			}},
			{"Access Modes", "string", 0, "Ways in which it can be mounted.", func(o *corev1.PersistentVolume, _ moment) any {
				return shortModes(o.GetSpec().GetAccessModes())
			}},
			{"Reclaim Policy", "string", 0, "What becomes of the storage when its claim goes.", func(o *corev1.PersistentVolume, _ moment) any {
				return o.GetSpec().GetPersistentVolumeReclaimPolicy()
			}},
			{"Status", "string", 0, "Whether it is free, bound or released.", func(o *corev1.PersistentVolume, _ moment) any {
				return storagePhase(o, o.GetStatus().GetPhase())
			}},
			{"Claim", "string", 0, "Claim that has it.", func(o *corev1.PersistentVolume, _ moment) any {
				ref := o.GetSpec().GetClaimRef()
				if ref == nil {
					return ""
				}
				return ref.GetNamespace() + "/" + ref.GetName()
			}},
			{"StorageClass", "string", 0, "Class that it belongs to.", func(o *corev1.PersistentVolume, _ moment) any {
				return storage.ClassOfVolume(o)
			}},
			{"VolumeAttributesClass", "string", 0, "Class of changeable attributes.", func(o *corev1.PersistentVolume, _ moment) any {
				return orUnset(o.GetSpec().GetVolumeAttributesClassName())
			}},
			{"Reason", "string", 0, "Why it is in its phase.", func(o *corev1.PersistentVolume, _ moment) any {
				return o.GetStatus().GetReason()
			}},
			age[*corev1.PersistentVolume](),
			{"VolumeMode", "string", 1, "Whether it holds files or is a device.", func(o *corev1.PersistentVolume, _ moment) any {
				return orUnset(o.GetSpec().GetVolumeMode())
			}},
		},
	}.Strategy()}
}

// stampPhase notes when the phase changes, unless the writer says when it did.
func stampPhase(now clock.PassiveClock, next, live *corev1.PersistentVolumeStatus) {
	said, had := next.LastPhaseTransitionTime, live.GetLastPhaseTransitionTime()
	switch {
	case next.GetPhase() == live.GetPhase():
		if said == nil {
			next.LastPhaseTransitionTime = had
		}
	case said == nil || value.GoTime(said).Equal(value.GoTime(had)):
		next.LastPhaseTransitionTime = value.Time(now.Now())
	}
}
