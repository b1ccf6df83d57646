package core

import (
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// oldClassAnnotation named the class of volumes and claims before there was a field for it.
const (
	oldClassAnnotation = "volume.beta.kubernetes.io/storage-class"
	oldClass           = `deprecated since v1.8; use "storageClassName" attribute instead`
)

func warningsOfPersistentVolume(next, _ *corev1.PersistentVolume) (w validation.Warnings) {
	spec, s := validation.NewPath("spec"), next.GetSpec()
	for _, old := range []struct{ key, text string }{
		{oldClassAnnotation, oldClass},
		{"volume.beta.kubernetes.io/mount-options", `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := next.GetMetadata().GetAnnotations()[old.key]; ok {
			w.Add(validation.NewPath("metadata", "annotations").Key(old.key), "%s", old.text)
		}
	}
	if s.GetPersistentVolumeReclaimPolicy() == "Recycle" {
		w.Add(spec.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the "+
			"recommended approach is to use dynamic provisioning.")
	}
	at := spec.Child("nodeAffinity").Child("required").Child("nodeSelectorTerms")
	for i, t := range s.GetNodeAffinity().GetRequired().GetNodeSelectorTerms() {
		podspec.WarnOfTerm(&w, at.Index(i), t)
	}
	w.OldSource(spec, s.GetPersistentVolumeSource())
	return w
}
