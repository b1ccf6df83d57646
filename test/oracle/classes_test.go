package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object/storage"
)

func TestClaimsAndVolumesNameTheSameClass(t *testing.T) {
	r := random(t)
	for range *count {
		k, kv := &v1.PersistentVolumeClaim{}, &v1.PersistentVolume{}
		if r.IntN(2) == 0 {
			k.Spec.StorageClassName = ptr(pick(r, []string{"", "a"}))
			kv.Spec.StorageClassName = pick(r, []string{"", "a"})
		}
		if r.IntN(2) == 0 {
			k.Annotations = map[string]string{v1.BetaStorageClassAnnotation: pick(r, []string{"", "b"})}
			kv.Annotations = k.Annotations
		}
		c, err := ours(k, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		v, err := ours(kv, &corev1.PersistentVolume{})
		if err != nil {
			t.Fatal(err)
		}
		names, class, of := volume.PersistentVolumeClaimHasClass(k), volume.GetPersistentVolumeClaimClass(k),
			volume.GetPersistentVolumeClass(kv)
		if storage.NamesClass(c) != names || storage.ClassOfClaim(c) != class {
			t.Fatalf("%v names a class: %v %q for Kubernetes, %v %q for Monoplane", c, names, class, storage.NamesClass(c),
				storage.ClassOfClaim(c))
		}
		if got := storage.ClassOfVolume(v); got != of {
			t.Fatalf("class of %v: %q for Kubernetes, %q for Monoplane", v, of, got)
		}
	}
}
