package storage

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
)

// Meant says whether a volume is bound to the claim, or set aside for it by name.
func Meant(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref, m := v.GetSpec().GetClaimRef(), c.GetMetadata()
	return ref != nil && ref.GetName() == m.GetName() && ref.GetNamespace() == m.GetNamespace() &&
		(ref.GetUid() == "" || ref.GetUid() == m.GetUid())
}

// Reference returns what a volume that is bound to the claim has in claimRef.
func Reference(c *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	m := c.GetMetadata()
	return &corev1.ObjectReference{
		ApiVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
		ResourceVersion: m.GetResourceVersion(),
	}
}

// BoundVolume returns a copy of the volume that is bound to the claim, or the volume itself when it is already.
func BoundVolume(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	meant, ref := Meant(v, c), v.GetSpec().GetClaimRef()
	if meant && ref.GetUid() == c.GetMetadata().GetUid() {
		return v
	}
	n := object.Clone(v)
	n.Spec.ClaimRef = Reference(c)
	if !meant {
		Annotate(n, BoundByController, "yes")
	}
	return n
}

// Annotate sets an annotation. It changes the object.
func Annotate(o object.Object, key, text string) {
	m := o.GetMetadata()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = text
}

// Wish is what a claim asks of a volume, read once.
type Wish struct {
	Claim *corev1.PersistentVolumeClaim
	Class string
	Size  resource.Quantity
	// selector is nil when any labels will do.
	selector labels.Selector
}

// NewWish reads what the claim asks for.
func NewWish(c *corev1.PersistentVolumeClaim) *Wish {
	w := &Wish{Claim: c, Class: ClassOfClaim(c), Size: Asked(c)}
	if s := c.GetSpec().GetSelector(); s != nil {
		w.selector = labelselector.OrNothing(s)
	}
	return w
}

// Holds says whether the volume has what nobody waives: it is large enough, of the claim's volume mode, and not going.
func (w *Wish) Holds(v *corev1.PersistentVolume, size resource.Quantity) bool {
	return v.GetMetadata().GetDeletionTimestamp() == nil && size.Cmp(w.Size) >= 0 && SameMode(v, w.Claim)
}

// Free says whether the volume, which Holds, is one that is left to anybody with such a wish. Its class is not looked
// at, nor the nodes that can reach it.
func (w *Wish) Free(v *corev1.PersistentVolume) bool {
	return v.GetSpec().GetClaimRef() == nil && v.GetStatus().GetPhase() == "Available" && HasModes(v, w.Claim) &&
		(w.selector == nil || w.selector.Matches(labels.Set(v.GetMetadata().GetLabels())))
}

// SameMode says whether a volume and a claim agree on files or a device.
func SameMode(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return modeOf(v.GetSpec().GetVolumeMode()) == modeOf(c.GetSpec().GetVolumeMode())
}

func modeOf(m string) string {
	if m == "" {
		return "Filesystem"
	}
	return m
}

// HasModes says whether a volume has all access modes of a claim.
func HasModes(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	for _, m := range c.GetSpec().GetAccessModes() {
		if !slices.Contains(v.GetSpec().GetAccessModes(), m) {
			return false
		}
	}
	return true
}
