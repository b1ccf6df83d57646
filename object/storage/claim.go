package storage

import (
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
next:
	for _, v := range p.GetSpec().GetVolumes() {
		s := v.GetVolumeSource().GetPersistentVolumeClaim()
		if s == nil {
			continue
		}
		for _, known := range names {
			if known == s.GetClaimName() {
				continue next
			}
		}
		names = append(names, s.GetClaimName())
	}
	return names
}
