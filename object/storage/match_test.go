package storage_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object/storage"
)

func size(s string) map[string]*metav1.Quantity {
	return map[string]*metav1.Quantity{"storage": {String_: s}}
}

// What a claim for 2Gi, ReadWriteOnce, of volumes labelled disk=ssd may take of what is left to anybody, and what it
// may take if a volume is set aside for it.
func TestWish(t *testing.T) {
	type pv = *corev1.PersistentVolume
	wish := storage.NewWish(&corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{Requests: size("2Gi")},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}},
		},
	})
	block, files := "Block", "Filesystem"
	for _, tc := range []struct {
		name        string
		change      func(v pv)
		holds, free bool
	}{
		{"as wished", func(pv) {}, true, true},
		{"larger", func(v pv) { v.Spec.Capacity = size("3Gi") }, true, true},
		{"smaller", func(v pv) { v.Spec.Capacity = size("2047Mi") }, false, true},
		{"without a size", func(v pv) { v.Spec.Capacity = nil }, false, true},
		{"going", func(v pv) { v.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1} }, false, true},
		{"a device", func(v pv) { v.Spec.VolumeMode = &block }, false, true},
		{"files, said so", func(v pv) { v.Spec.VolumeMode = &files }, true, true},
		{"not noticed by the controller yet", func(v pv) { v.Status.Phase = "" }, true, false},
		{"released", func(v pv) { v.Status.Phase = "Released" }, true, false},
		{"failed", func(v pv) { v.Status.Phase = "Failed" }, true, false},
		{"set aside", func(v pv) { v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"} }, true, false},
		{"another access mode", func(v pv) { v.Spec.AccessModes = []string{"ReadOnlyMany"} }, true, false},
		{"more access modes", func(v pv) { v.Spec.AccessModes = []string{"ReadOnlyMany", "ReadWriteOnce"} }, true, true},
		{"another label", func(v pv) { v.Metadata.Labels["disk"] = "hdd" }, true, false},
	} {
		v := &corev1.PersistentVolume{
			Metadata: &metav1.ObjectMeta{Name: "v", Labels: map[string]string{"disk": "ssd"}},
			Spec:     &corev1.PersistentVolumeSpec{Capacity: size("2Gi"), AccessModes: []string{"ReadWriteOnce"}},
			Status:   &corev1.PersistentVolumeStatus{Phase: "Available"},
		}
		tc.change(v)
		if holds, free := wish.Holds(v, storage.Size(v)), wish.Free(v); holds != tc.holds || free != tc.free {
			t.Errorf("%s: holds %v, free %v, want %v and %v", tc.name, holds, free, tc.holds, tc.free)
		}
	}
}
