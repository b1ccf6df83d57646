package defaults

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/object/storage"
)

const (
	volumeModeFilesystem = "Filesystem"
	phasePending         = "Pending"
)

// PersistentVolume fills in a volume; call it on create, on update and on a status update.
func PersistentVolume(v *corev1.PersistentVolume) {
	if v.Metadata == nil {
		v.Metadata = &metav1.ObjectMeta{}
	}
	if v.Spec == nil {
		v.Spec = &corev1.PersistentVolumeSpec{}
	}
	if v.Status == nil {
		v.Status = &corev1.PersistentVolumeStatus{}
	}
	set(&v.Spec.PersistentVolumeReclaimPolicy, "Retain")
	setPtr(&v.Spec.VolumeMode, volumeModeFilesystem)
	if h := v.Spec.PersistentVolumeSource.GetHostPath(); h != nil {
		setPtr(&h.Type, "")
	}
	roundAll(v.Spec.Capacity)
	set(&v.Status.Phase, phasePending)
}

// NewPersistentVolume is PersistentVolume plus what creation adds: protection and a fresh status. Call it when the
// creation time is known.
func NewPersistentVolume(v *corev1.PersistentVolume) {
	v.Status = nil
	PersistentVolume(v)
	v.Status.LastPhaseTransitionTime = v.Metadata.CreationTimestamp
	protect(v.Metadata, storage.VolumeProtection)
}

// PersistentVolumeClaim fills in a claim; call it on create, on update and on a status update.
func PersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	if c.Metadata == nil {
		c.Metadata = &metav1.ObjectMeta{}
	}
	if c.Spec == nil {
		c.Spec = &corev1.PersistentVolumeClaimSpec{}
	}
	if c.Status == nil {
		c.Status = &corev1.PersistentVolumeClaimStatus{}
	}
	setPtr(&c.Spec.VolumeMode, volumeModeFilesystem)
	roundAll(c.Spec.Resources.GetLimits())
	roundAll(c.Spec.Resources.GetRequests())
	set(&c.Status.Phase, phasePending)
	roundAll(c.Status.Capacity)
	roundAll(c.Status.AllocatedResources)
}

// NewPersistentVolumeClaim is PersistentVolumeClaim plus what creation adds: protection and a fresh status.
func NewPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	c.Status = nil
	PersistentVolumeClaim(c)
	protect(c.Metadata, storage.ClaimProtection)
}

// KeepVolumeProtection puts back the protection of a volume that is not being deleted, for clients that write the manifest it was
// made of: without it the volume would go while its claim is bound. In Kubernetes a controller does so a moment later.
func KeepVolumeProtection(next, live *corev1.PersistentVolume) {
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		protect(next.Metadata, storage.VolumeProtection)
	}
}

// KeepClaimProtection is KeepVolumeProtection for a claim, which would go while pods use it.
func KeepClaimProtection(next, live *corev1.PersistentVolumeClaim) {
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		protect(next.Metadata, storage.ClaimProtection)
	}
}

func protect(m *metav1.ObjectMeta, finalizer string) {
	if !slices.Contains(m.Finalizers, finalizer) {
		m.Finalizers = append(m.Finalizers, finalizer)
	}
}

// StorageClass fills in a class.
func StorageClass(c *storagev1.StorageClass) {
	if c.Metadata == nil {
		c.Metadata = &metav1.ObjectMeta{}
	}
	setPtr(&c.ReclaimPolicy, "Delete")
	setPtr(&c.VolumeBindingMode, "Immediate")
}
