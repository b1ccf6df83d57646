package storage

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// Has says whether an object has an annotation.
func Has(o object.Object, annotation string) bool {
	_, ok := o.GetMetadata().GetAnnotations()[annotation]
	return ok
}

// ClassOfClaim returns the name of a claim's class, "" for none.
func ClassOfClaim(c *corev1.PersistentVolumeClaim) string {
	return class(c, c.GetSpec().GetStorageClassName())
}

// ClassOfVolume returns the name of a volume's class, "" for none.
func ClassOfVolume(v *corev1.PersistentVolume) string {
	return class(v, v.GetSpec().GetStorageClassName())
}

func class(o object.Object, field string) string {
	if name, ok := o.GetMetadata().GetAnnotations()[BetaClass]; ok {
		return name
	}
	return field
}

// Waits says whether claims of a class, which may be nil, are bound only when a pod uses them.
func Waits(c *storagev1.StorageClass) bool { return c.GetVolumeBindingMode() == WaitForFirstConsumer }

// IsDefault says whether a storage class is for claims that name none.
func IsDefault(class object.Object) bool {
	a := class.GetMetadata().GetAnnotations()
	return a[DefaultClass] == "true" || a[BetaDefaultClass] == "true"
}

// DefaultOf returns the name of the class for claims that name none: of several the newest, and of those that are
// equally new the first by name. It is empty when there is none.
func DefaultOf[T object.Object](classes []T) string {
	name, made := "", time.Time{}
	for _, c := range classes {
		if !IsDefault(c) {
			continue
		}
		m := c.GetMetadata()
		at := value.GoTime(m.GetCreationTimestamp())
		if name == "" || at.After(made) || at.Equal(made) && m.GetName() < name {
			name, made = m.GetName(), at
		}
	}
	return name
}

// NamesClass says whether a claim names a class, be it "" for none.
func NamesClass(c *corev1.PersistentVolumeClaim) bool {
	return c.GetSpec() != nil && c.Spec.StorageClassName != nil || Has(c, BetaClass)
}

// LeftToNode returns the node whose agent has to remove the directory of a volume before the volume itself may go; ""
// for none: it is another's, it is kept, or a claim has it.
func LeftToNode(v *corev1.PersistentVolume) string {
	a, spec := v.GetMetadata().GetAnnotations(), v.GetSpec()
	phase := v.GetStatus().GetPhase()
	if a[ProvisionedBy] != LocalProvisioner || spec.GetPersistentVolumeReclaimPolicy() != "Delete" ||
		phase != "Released" && (phase != "Available" || v.GetMetadata().GetDeletionTimestamp() == nil) {
		return ""
	}
	return a[MadeOn]
}

// IsBound says whether a claim's binding has been carried out.
func IsBound(c *corev1.PersistentVolumeClaim) bool {
	return c.GetSpec().GetVolumeName() != "" && Has(c, BindCompleted)
}

// Asked returns how much a claim asks for. The server lets no claim pass that cannot be read, which counts as 0 here.
func Asked(c *corev1.PersistentVolumeClaim) resource.Quantity {
	return quantity(c.GetSpec().GetResources().GetRequests())
}

// Size returns how much a volume has.
func Size(v *corev1.PersistentVolume) resource.Quantity { return quantity(v.GetSpec().GetCapacity()) }

func quantity(list map[string]*metav1.Quantity) resource.Quantity {
	q, err := value.Quantity(list["storage"])
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// ClaimNames returns the names of the claims that a pod uses, each once, in the order of its volumes.
func ClaimNames(p *corev1.Pod) []string {
	var names []string
	for _, v := range p.GetSpec().GetVolumes() {
		if name := ClaimOf(p, v); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ClaimOf returns the name of the claim that a volume of a pod uses, be it made for the pod; "" for none.
func ClaimOf(p *corev1.Pod, v *corev1.Volume) string {
	switch s := v.GetVolumeSource(); {
	case s.GetPersistentVolumeClaim() != nil:
		return s.GetPersistentVolumeClaim().GetClaimName()
	case s.GetEphemeral() != nil:
		return EphemeralClaim(p.GetMetadata().GetName(), v.GetName())
	default:
		return ""
	}
}

// EphemeralClaim returns the name of the claim that is made for an ephemeral volume of a pod.
func EphemeralClaim(pod, volume string) string { return pod + "-" + volume }

// PodOf returns who the pod is that a claim was made for; nil for a claim that was made for none.
func PodOf(c *corev1.PersistentVolumeClaim) *metav1.OwnerReference {
	for _, o := range c.GetMetadata().GetOwnerReferences() {
		if o.GetController() && o.GetKind() == "Pod" && o.GetApiVersion() == "v1" {
			return o
		}
	}
	return nil
}
