package core_test

import (
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
)

func TestPersistentVolumeClaims(t *testing.T) {
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Metadata: kindtest.Meta("c", "d"), Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"},
			Resources:   &corev1.VolumeResourceRequirements{Requests: kindtest.Amounts("storage", "5Gi")},
		}}
		core.DefaultPersistentVolumeClaim(c)
		if change != nil {
			change(c)
		}
		return c
	}
	sized := func(size string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = kindtest.Amounts("storage", size) }
	}
	bound := func(size string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = "v", "Bound", kindtest.Amounts("storage", "3Gi")
			sized(size)(c)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   []string
	}{
		{"claim", nil, nil},
		{"nothing", func(c *corev1.PersistentVolumeClaim) { c.Spec = nil },
			[]string{"Required spec.accessModes", "Required spec.resources[storage]"}},
		{"empty", sized("0"), []string{"Invalid spec.resources[storage]"}},
		{"not alone", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []string{"ReadWriteOncePod", "ReadWriteMany"}
		}, []string{"Forbidden spec.accessModes"}},
		{"words", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.VolumeMode = ptr("A"), ptr("Tape")
		}, []string{
			"Invalid spec.storageClassName", "NotSupported spec.volumeMode",
		}},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolumeClaim(claim(c.change)), c.want...)
	}
	class := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	annotated := func(c *corev1.PersistentVolumeClaim) {
		c.Metadata.Annotations = map[string]string{storage.BetaClass: "old"}
	}
	volume := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name }
	}
	for _, c := range []struct {
		name     string
		new, old func(*corev1.PersistentVolumeClaim)
		want     []string
	}{
		{"volume named", volume("v"), nil, nil},
		{"another volume", volume("w"), volume("v"), []string{"Forbidden spec"}},
		{"class named", class("a"), nil, nil},
		{"class named otherwise than by the annotation",
			func(c *corev1.PersistentVolumeClaim) { annotated(c); class("b")(c) }, annotated, []string{"Forbidden spec"}},
		{"class moved from the annotation", class("old"), annotated, nil},
		{"annotation changed", nil, annotated,
			[]string{"Invalid metadata.annotations.volume.beta.kubernetes.io/storage-class"}},
		{"another class", class("a"), class("b"), []string{"Forbidden spec"}},
		{"grown", sized("6Gi"), nil, []string{"Forbidden spec"}},
		{"grown when bound", bound("6Gi"), bound("5Gi"), nil},
		{"growth taken back", bound("4Gi"), bound("5Gi"), nil},
		{"shrunk to what it has", bound("3Gi"), bound("5Gi"), []string{"Forbidden spec.resources.requests.storage"}},
		{"other access", func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []string{"ReadOnlyMany"} }, nil,
			[]string{"Forbidden spec"}},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolumeClaimUpdate(claim(c.new), claim(c.old)), c.want...)
	}
	kindtest.Judge(t, "status",
		core.ValidatePersistentVolumeClaimStatusUpdate(claim(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity, c.Status.AllocatedResources = kindtest.Amounts("storage", "-1"),
				kindtest.Amounts("cpu", "1", "storage", "-1")
			c.Status.AllocatedResourceStatuses = map[string]string{"storage": "Done"}
		}), claim(nil)), "Invalid status.capacity[storage]", "NotSupported status.allocatedResourceStatuses",
		"NotSupported status.allocatedResources", "Invalid status.allocatedResources[storage]")
}

func ptr[T any](v T) *T { return &v }
