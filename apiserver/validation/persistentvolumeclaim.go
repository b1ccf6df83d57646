package validation

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

const claimBound = "Bound"

// PersistentVolumeClaim checks a claim that is to be created.
func PersistentVolumeClaim(c *corev1.PersistentVolumeClaim) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.claim(c, nil)
	}
	return f.causes()
}

// PersistentVolumeClaimUpdate checks that a change of a claim is allowed: its spec stays, but for the volume, which is
// named once, a class where none was named, and the size of a bound claim. Whether the class lets the claim grow is
// decided where it is stored.
func PersistentVolumeClaimUpdate(new, old *corev1.PersistentVolumeClaim) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.claim(new, old)
		if !namedByAnnotation(new, old) {
			f.sameAnnotation(storage.BetaClass, new.GetMetadata(), old.GetMetadata())
		}
		if !Equal(settled(new, old), old.GetSpec()) {
			f.forbidden(f.root("spec"),
				"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
		}
		f.shrunk(f.root("spec").Child("resources").Child("requests").Child(resources.Storage), new, old)
		fixed(&f, f.root("volumeMode"), claimSpecOf(new).VolumeMode, claimSpecOf(old).VolumeMode) // Kubernetes' path.
	}
	return f.causes()
}

// PersistentVolumeClaimStatusUpdate checks a change of a claim's status.
func PersistentVolumeClaimStatusUpdate(new, old *corev1.PersistentVolumeClaim) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		s, p := new.GetStatus(), f.root("status")
		for _, name := range sorted(&few{}, s.GetCapacity()) {
			f.size(p.Child("capacity").Key(name), s.GetCapacity()[name], false)
		}
		f.resizes(p.Child("allocatedResourceStatuses"), s.GetAllocatedResourceStatuses())
		for _, name := range sorted(&few{}, s.GetAllocatedResources()) {
			at := p.Child("allocatedResources")
			if f.claimResource(at, name) {
				f.allocated(at.Key(name), s.GetAllocatedResources()[name])
			}
		}
	}
	return f.causes()
}

func (f *faults) claim(c, old *corev1.PersistentVolumeClaim) {
	f.core(c.GetMetadata(), old.GetMetadata(), true, NameIsSubdomain)
	p, s := f.root("spec"), c.GetSpec()
	if len(s.GetAccessModes()) == 0 {
		f.required(p.Child("accessModes"), "at least 1 access mode is required")
	}
	f.labelSelector(p.Child("selector"), s.GetSelector())
	f.accessModes(p.Child("accessModes"), s.GetAccessModes())
	at := p.Child("resources").Key(resources.Storage)
	if text, ok := s.GetResources().GetRequests()[resources.Storage]; !ok {
		f.required(at, "")
	} else if q, err := value.Quantity(text); err != nil {
		f.invalid(at, text.GetString_(), err.Error())
	} else if q.Sign() <= 0 {
		f.invalid(at, q.String(), "must be greater than zero")
	}
	f.className(p.Child("storageClassName"), s.GetStorageClassName())
	if s != nil {
		f.volumeMode(p.Child("volumeMode"), s.VolumeMode)
	}
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
	return now
}

// namedByAnnotation says whether an update moves the class of a claim from the old annotation to the field.
func namedByAnnotation(new, old *corev1.PersistentVolumeClaim) bool {
	was, ok := old.GetMetadata().GetAnnotations()[storage.BetaClass]
	now, still := new.GetMetadata().GetAnnotations()[storage.BetaClass]
	name := claimSpecOf(new).StorageClassName
	return ok && claimSpecOf(old).StorageClassName == nil && name != nil && *name == was && (!still || now == was)
}

func (f *faults) sameAnnotation(key string, new, old *metav1.ObjectMeta) {
	if now := new.GetAnnotations()[key]; now != old.GetAnnotations()[key] {
		f.invalid(f.root("metadata").Child("annotations").Child(key), now, immutable)
	}
}

// shrunk refuses a claim that asks for less than it did, unless it stays above the size of its volume: so a user takes
// back a growth that was not possible.
func (f *faults) shrunk(p *fieldPath, new, old *corev1.PersistentVolumeClaim) {
	now, errNow := value.Quantity(new.GetSpec().GetResources().GetRequests()[resources.Storage])
	was, errWas := value.Quantity(old.GetSpec().GetResources().GetRequests()[resources.Storage])
	has, errHas := value.Quantity(old.GetStatus().GetCapacity()[resources.Storage])
	if errNow == nil && errWas == nil && errHas == nil && now.Cmp(was) < 0 && now.Cmp(has) <= 0 {
		f.forbidden(p, "field can not be less than status.capacity")
	}
}

// resizes checks how far an expansion is. The faults name the whole map and the resource, as in Kubernetes.
func (f *faults) resizes(p *fieldPath, statuses map[string]string) {
	known := []string{
		"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending",
	}
	for _, name := range sorted(&few{}, statuses) {
		f.claimResource(p, name)
		if !slices.Contains(known, statuses[name]) {
			f.add(p, field.NotSupported(nil, name, known))
		}
	}
}

// claimResource checks a resource that a volume can have: storage, or one of a vendor.
func (f *faults) claimResource(p *fieldPath, name string) bool {
	msgs := wrongQualifiedName(name)
	f.invalid(p, name, msgs...)
	if len(msgs) > 0 {
		return false
	}
	if resources.IsNative(name) && name != resources.Storage {
		f.oneOf(p, name, resources.Storage)
		return false
	}
	return true
}

// allocated checks a size that an expansion has reserved.
func (f *faults) allocated(p *fieldPath, text *metav1.Quantity) {
	q, err := value.Quantity(text)
	switch {
	case err != nil:
		f.invalid(p, text.GetString_(), err.Error())
	case q.Value() < 0:
		f.invalidValue(p, q.Value(), "must be a valid resource quantity")
	case q.Sign() < 0:
		f.invalid(p, q.String(), "must be greater than or equal to 0")
	}
}
