package storage_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/object/storage"
)

func TestDefaultOf(t *testing.T) {
	class := func(name, annotation, value string, made int64) *storagev1.StorageClass {
		return &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{annotation: value}, CreationTimestamp: &metav1.Time{Seconds: made},
		}}
	}
	const annotation, beta = "storageclass.kubernetes.io/is-default-class",
		"storageclass.beta.kubernetes.io/is-default-class"
	for _, c := range []struct {
		name    string
		classes []*storagev1.StorageClass
		want    string
	}{
		{"no class", nil, ""},
		{"no default", []*storagev1.StorageClass{class("a", annotation, "false", 1), class("b", "", "true", 1), {}}, ""},
		{"one", []*storagev1.StorageClass{class("a", annotation, "false", 2), class("b", annotation, "true", 1)}, "b"},
		{"the old annotation", []*storagev1.StorageClass{class("b", beta, "true", 1)}, "b"},
		{"the newest", []*storagev1.StorageClass{class("a", annotation, "true", 1), class("b", annotation, "true", 2)}, "b"},
		{"equally new", []*storagev1.StorageClass{class("b", annotation, "true", 1), class("a", annotation, "true", 1)},
			"a"},
	} {
		if got := storage.DefaultOf(c.classes); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNamesClass(t *testing.T) {
	none := ""
	for _, c := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		names bool
		class string
	}{
		{"nothing", &corev1.PersistentVolumeClaim{}, false, ""},
		{"no class", &corev1.PersistentVolumeClaim{Spec: &corev1.PersistentVolumeClaimSpec{StorageClassName: &none}}, true,
			""},
		{"the old way wins", &corev1.PersistentVolumeClaim{
			Metadata: &metav1.ObjectMeta{Annotations: map[string]string{storage.BetaClass: "a"}},
			Spec:     &corev1.PersistentVolumeClaimSpec{StorageClassName: &none},
		}, true, "a"},
		{"the old way", &corev1.PersistentVolumeClaim{Metadata: &metav1.ObjectMeta{
			Annotations: map[string]string{storage.BetaClass: ""}}}, true, ""},
	} {
		if names, class := storage.NamesClass(c.claim), storage.ClassOfClaim(c.claim); names != c.names || class != c.class {
			t.Errorf("%s: %v %q, want %v %q", c.name, names, class, c.names, c.class)
		}
	}
}
