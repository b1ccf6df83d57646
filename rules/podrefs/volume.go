package podrefs

import (
	"iter"

	corev1 "monoplane.dev/api/core/v1"
)

// VolumeSecrets returns namespace and name of the Secrets that a node needs for a persistent volume: those that it
// hands to the volume's CSI driver. Secrets for attaching the volume, or for making it larger where it is kept, are no
// business of a node's.
func VolumeSecrets(v *corev1.PersistentVolume) iter.Seq2[string, string] {
	return func(yield func(namespace, name string) bool) {
		csi := v.GetSpec().GetPersistentVolumeSource().GetCsi()
		for _, ref := range [...]*corev1.SecretReference{
			csi.GetNodeStageSecretRef(), csi.GetNodePublishSecretRef(), csi.GetNodeExpandSecretRef(),
		} {
			if ref.GetName() != "" && !yield(ref.GetNamespace(), ref.GetName()) {
				return
			}
		}
	}
}
