package core

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/claimspec"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// PersistentVolumeClaim describes the kind.
func PersistentVolumeClaim(c define.Config) define.Definition {
	own := claims{c.Deps}
	return define.Definition{Strategy: registry.Typed[*corev1.PersistentVolumeClaim]{
		Kind:       corev1.PersistentVolumeClaimKind,
		Default:    DefaultPersistentVolumeClaim,
		DefaultNew: DefaultNewPersistentVolumeClaim,
		Admit:      own.defaultClass,
		Validate:   ValidatePersistentVolumeClaim,
		Warn: func(next, _ *corev1.PersistentVolumeClaim) (w validation.Warnings) {
			if _, ok := next.GetMetadata().GetAnnotations()[oldClassAnnotation]; ok {
				w.Add(validation.NewPath("metadata", "annotations").Key(oldClassAnnotation), "%s", oldClass)
			}
			podspec.WarnOfClaim(&w, validation.NewPath("spec"), next.GetSpec())
			return w
		},
		Main: registry.TypedUpdateRules[*corev1.PersistentVolumeClaim]{
			Apply: func(asked, live *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
				next := &corev1.PersistentVolumeClaim{Metadata: metadata(asked, live), Spec: object.Clone(asked.GetSpec())}
				DefaultPersistentVolumeClaim(next)
				claimspec.NormalizeDataSource(next.Spec, live.GetSpec())
				keepClaimProtection(next, live)
				next.Status = live.Status
				return next
			},
			Authorize: own.mayGrow,
			Validate:  ValidatePersistentVolumeClaimUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.PersistentVolumeClaim]{
			"status": {
				Validate: ValidatePersistentVolumeClaimStatusUpdate,
			},
		},
		Fields: map[string]func(*corev1.PersistentVolumeClaim) string{
			"name": func(o *corev1.PersistentVolumeClaim) string { return o.GetMetadata().GetName() },
		},
		Table: claimTable(),
	}.Strategy()}
}

// DefaultPersistentVolumeClaim fills in a claim; call it on create, on update and on a status update.
func DefaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	defaults.Message(&c.Metadata)
	defaults.Message(&c.Spec)
	defaults.Message(&c.Status)
	claimspec.Default(c.Spec)
	defaults.Set(&c.Status.Phase, phasePending)
	defaults.Round(c.Status.Capacity)
	defaults.Round(c.Status.AllocatedResources)
}

// DefaultNewPersistentVolumeClaim is DefaultPersistentVolumeClaim plus what creation adds: protection and a fresh
// status.
func DefaultNewPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	c.Status = nil
	DefaultPersistentVolumeClaim(c)
	claimspec.NormalizeDataSource(c.Spec, nil)
	protect(c.Metadata, storage.ClaimProtection)
}

// keepClaimProtection is keepVolumeProtection for a claim, which would go while pods use it.
func keepClaimProtection(next, live *corev1.PersistentVolumeClaim) {
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		protect(next.Metadata, storage.ClaimProtection)
	}
}

const claimBound = "Bound"

// ValidatePersistentVolumeClaim checks a claim that is to be created.
func ValidatePersistentVolumeClaim(c *corev1.PersistentVolumeClaim) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkClaim(f, c, nil)
	}
	return f.Causes()
}

// ValidatePersistentVolumeClaimUpdate checks that a change of a claim is allowed: its spec stays, but for the volume,
// which is named once, a class where none was named, and the size of a bound claim. Whether the class lets the claim
// grow is decided where it is stored.
func ValidatePersistentVolumeClaimUpdate(new, old *corev1.PersistentVolumeClaim) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkClaim(f, new, old)
		if !namedByAnnotation(new, old) {
			checkSameAnnotation(f, storage.BetaClass, new.GetMetadata(), old.GetMetadata())
		}
		if !validation.Equal(settled(new, old), old.GetSpec()) {
			f.Forbidden(f.Root("spec"),
				"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
		}
		checkShrunk(f, f.Root("spec").Child("resources").Child("requests").Child(resources.Storage), new, old)
		// The path is Kubernetes'.
		validation.Fixed(f, f.Root("volumeMode"), claimSpecOf(new).VolumeMode, claimSpecOf(old).VolumeMode)
		checkAttributesKept(f, f.Root("spec").Child("volumeAttributesClassName"), new, old)
	}
	return f.Causes()
}

// ValidatePersistentVolumeClaimStatusUpdate checks a change of a claim's status.
func ValidatePersistentVolumeClaimStatusUpdate(new, old *corev1.PersistentVolumeClaim) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		s, p := new.GetStatus(), f.Root("status")
		for _, name := range validation.Sorted(&validation.Few{}, s.GetCapacity()) {
			checkSize(f, p.Child("capacity").Key(name), s.GetCapacity()[name], false)
		}
		checkResizes(f, p.Child("allocatedResourceStatuses"), s.GetAllocatedResourceStatuses())
		for _, name := range validation.Sorted(&validation.Few{}, s.GetAllocatedResources()) {
			at := p.Child("allocatedResources")
			if checkClaimResource(f, at, name) {
				checkAllocated(f, at.Key(name), s.GetAllocatedResources()[name])
			}
		}
	}
	return f.Causes()
}

func checkClaim(f *validation.Faults, c, old *corev1.PersistentVolumeClaim) {
	f.CoreMeta(c.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	claimspec.Check(f, f.Root("spec"), c.GetSpec(), old.GetSpec())
}

// claimSpecOf returns the spec of a claim, which is empty rather than nil.
func claimSpecOf(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
	if s := c.GetSpec(); s != nil {
		return s
	}
	return &corev1.PersistentVolumeClaimSpec{}
}

// settled returns the spec of new with the old values of what may change.
func settled(new, old *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
	now, was := proto.CloneOf(claimSpecOf(new)), claimSpecOf(old)
	if was.GetVolumeName() == "" {
		now.VolumeName = ""
	}
	beta, named := old.GetMetadata().GetAnnotations()[storage.BetaClass]
	if was.StorageClassName == nil && now.StorageClassName != nil && (!named || now.GetStorageClassName() == beta) {
		now.StorageClassName = nil
	}
	if new.GetStatus().GetPhase() == claimBound && now.GetResources().GetRequests() != nil {
		now.Resources.Requests[resources.Storage] = was.GetResources().GetRequests()[resources.Storage]
	}
	if new.GetStatus().GetPhase() == claimBound {
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	return now
}

// namedByAnnotation says whether an update moves the class of a claim from the old annotation to the field.
func namedByAnnotation(new, old *corev1.PersistentVolumeClaim) bool {
	was, ok := old.GetMetadata().GetAnnotations()[storage.BetaClass]
	now, still := new.GetMetadata().GetAnnotations()[storage.BetaClass]
	name := claimSpecOf(new).StorageClassName
	return ok && claimSpecOf(old).StorageClassName == nil && name != nil && *name == was && (!still || now == was)
}

func checkSameAnnotation(f *validation.Faults, key string, new, old *metav1.ObjectMeta) {
	if now := new.GetAnnotations()[key]; now != old.GetAnnotations()[key] {
		f.Invalid(f.Root("metadata").Child("annotations").Child(key), now, validation.Immutable)
	}
}

// checkAttributesKept refuses to give up a class of attributes that a claim's volume has.
func checkAttributesKept(f *validation.Faults, p *validation.Path, new, old *corev1.PersistentVolumeClaim) {
	name, was := claimSpecOf(new).VolumeAttributesClassName, claimSpecOf(old).VolumeAttributesClassName
	if old.GetStatus() == nil || old.Status.CurrentVolumeAttributesClassName == nil {
		return
	}
	switch {
	case name == nil && was != nil:
		f.Forbidden(p, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	case name != nil && *name == "" && (was == nil || *was != ""):
		f.Forbidden(p, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// checkShrunk refuses a claim that asks for less than it did, unless it stays above the size of its volume: so a user
// takes back a growth that was not possible.
func checkShrunk(f *validation.Faults, p *validation.Path, new, old *corev1.PersistentVolumeClaim) {
	now, errNow := value.Quantity(new.GetSpec().GetResources().GetRequests()[resources.Storage])
	was, errWas := value.Quantity(old.GetSpec().GetResources().GetRequests()[resources.Storage])
	has, errHas := value.Quantity(old.GetStatus().GetCapacity()[resources.Storage])
	if errNow == nil && errWas == nil && errHas == nil && now.Cmp(was) < 0 && now.Cmp(has) <= 0 {
		f.Forbidden(p, "field can not be less than status.capacity")
	}
}

// checkResizes checks how far an expansion is. The faults name the whole map and the resource, as in Kubernetes.
func checkResizes(f *validation.Faults, p *validation.Path, statuses map[string]string) {
	known := []string{
		"ControllerResizeInProgress", "ControllerResizeInfeasible",
		"NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending",
	}
	for _, name := range validation.Sorted(&validation.Few{}, statuses) {
		checkClaimResource(f, p, name)
		if !slices.Contains(known, statuses[name]) {
			f.Add(p, field.NotSupported(nil, name, known))
		}
	}
}

// checkClaimResource checks a resource that a volume can have: storage, or one of a vendor.
func checkClaimResource(f *validation.Faults, p *validation.Path, name string) bool {
	msgs := validation.WrongQualifiedName(name)
	f.Invalid(p, name, msgs...)
	if len(msgs) > 0 {
		return false
	}
	if resources.IsNative(name) && name != resources.Storage {
		f.OneOf(p, name, resources.Storage)
		return false
	}
	return true
}

// checkAllocated checks a size that an expansion has reserved.
func checkAllocated(f *validation.Faults, p *validation.Path, text *metav1.Quantity) {
	q, err := value.Quantity(text)
	switch {
	case err != nil:
		f.Invalid(p, text.GetString_(), err.Error())
	case q.Value() < 0:
		f.InvalidValue(p, q.Value(), "must be a valid resource quantity")
	case q.Sign() < 0:
		f.Invalid(p, q.String(), "must be greater than or equal to 0")
	}
}

// claimTable is what kubectl get shows.
func claimTable() define.Columns[*corev1.PersistentVolumeClaim] {
	return define.Columns[*corev1.PersistentVolumeClaim]{
		define.Text("Status", "Whether the claim is bound.", func(o *corev1.PersistentVolumeClaim) string {
			return storagePhase(o, o.GetStatus().GetPhase())
		}),
		define.Text("Volume", "Volume that is bound.", func(o *corev1.PersistentVolumeClaim) string {
			return o.GetSpec().GetVolumeName()
		}),
		define.Text("Capacity", "Size of the volume.", func(o *corev1.PersistentVolumeClaim) string {
			if o.GetSpec().GetVolumeName() == "" {
				return ""
			}
			return sizeText(o.GetStatus().GetCapacity())
		}),
		define.Text("Access Modes", "Ways in which the volume can be mounted.",
			func(o *corev1.PersistentVolumeClaim) string {
				if o.GetSpec().GetVolumeName() == "" {
					return ""
				}
				return shortModes(o.GetStatus().GetAccessModes())
			}),
		define.Text("StorageClass", "Class of the volume.", storage.ClassOfClaim),
		define.Text("VolumeAttributesClass", "Class of changeable attributes.",
			func(o *corev1.PersistentVolumeClaim) string {
				return define.OrUnset(o.GetSpec().GetVolumeAttributesClassName())
			}),
		define.Age[*corev1.PersistentVolumeClaim](),
		define.Text("VolumeMode", "Whether the volume holds files or is a device.",
			func(o *corev1.PersistentVolumeClaim) string {
				return define.OrUnset(o.GetSpec().GetVolumeMode())
			}).Wide(),
	}
}

type claims struct {
	deps registry.Deps
}

// defaultClass gives a claim that names no class the default one. The classes are read as they are now, so that a
// class counts from the moment that its creation was answered.
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

// mayGrow refuses that a bound claim asks for more, unless its class allows it. One that is not bound may not change
// at all, which validation says.
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

// larger says whether next asks for more storage than live; not if either amount cannot be read, which is for
// validation to say.
func larger(next, live *corev1.PersistentVolumeClaimSpec) bool {
	now, errNow := value.Quantity(next.GetResources().GetRequests()["storage"])
	was, errWas := value.Quantity(live.GetResources().GetRequests()["storage"])
	return errNow == nil && errWas == nil && now.Cmp(was) > 0
}
