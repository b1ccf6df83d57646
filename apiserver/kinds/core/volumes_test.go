package core_test

import (
	"strings"
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
)

func reachable(key string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
		MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{"a"}}},
	}}}}
}

func TestPersistentVolumes(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolumeSpec)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{Metadata: kindtest.Meta("v", ""), Spec: &corev1.PersistentVolumeSpec{
			Capacity: kindtest.Amounts("storage", "1Gi"), AccessModes: []string{"ReadWriteOnce"}, NodeAffinity: reachable("beta.kubernetes.io/os"),
			PersistentVolumeSource: &corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt"}},
		}}
		core.DefaultPersistentVolume(v)
		if change != nil {
			change(v.Spec)
		}
		return v
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.PersistentVolumeSpec)
		want   []string
	}{
		{"local", nil, nil},
		{"nothing", func(s *corev1.PersistentVolumeSpec) { *s = corev1.PersistentVolumeSpec{} }, []string{
			"Required spec.accessModes", "Required spec.capacity", "NotSupported spec.capacity", "Required spec",
		}},
		{"alone", func(s *corev1.PersistentVolumeSpec) { s.AccessModes = []string{"ReadWriteOncePod"} }, nil},
		{"not alone", func(s *corev1.PersistentVolumeSpec) {
			s.AccessModes = []string{"ReadWriteOncePod", "ReadWriteOnce", "Some"}
		}, []string{
			"NotSupported spec.accessModes", "Forbidden spec.accessModes",
		}},
		{"sizes", func(s *corev1.PersistentVolumeSpec) { s.Capacity = kindtest.Amounts("storage", "0", "cpu", "-1") }, []string{
			"NotSupported spec.capacity", "Invalid spec.capacity[cpu]", "Invalid spec.capacity[cpu]", "Invalid spec.capacity[storage]",
		}},
		{"local without nodes", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil }, []string{"Required spec.nodeAffinity"}},
		{"no terms", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity.Required.NodeSelectorTerms = nil }, []string{
			"Required spec.nodeAffinity.required.nodeSelectorTerms",
		}},
		{"two sources", func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource.HostPath = &corev1.HostPathVolumeSource{Path: "/a/../b"}
		}, []string{"Forbidden spec.local", "Invalid spec.hostPath.path"}},
		{"root is not recycled", func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource = &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/."}}
			s.PersistentVolumeReclaimPolicy = "Recycle"
		}, []string{"Forbidden spec.persistentVolumeReclaimPolicy"}},
		{"driver", func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource = &corev1.PersistentVolumeSource{Csi: &corev1.CSIPersistentVolumeSource{
				Driver: strings.Repeat("a", 64), NodePublishSecretRef: &corev1.SecretReference{},
			}}
		}, []string{
			"TooLong spec.csi.driver", "Required spec.csi.volumeHandle", "Required spec.csi.nodePublishSecretRef.name",
			"Required spec.csi.nodePublishSecretRef.namespace",
		}},
		{"words", func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeReclaimPolicy, s.StorageClassName, s.VolumeMode = "Burn", "A", ptr("Tape")
		}, []string{"NotSupported spec.persistentVolumeReclaimPolicy", "Invalid spec.storageClassName", "NotSupported spec.volumeMode"}},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolume(volume(c.change)), c.want...)
	}
	for _, c := range []struct {
		name     string
		new, old func(*corev1.PersistentVolumeSpec)
		want     []string
	}{
		{"grown, claimed, classed", func(s *corev1.PersistentVolumeSpec) {
			s.Capacity, s.ClaimRef, s.StorageClassName = kindtest.Amounts("storage", "2Gi"), &corev1.ObjectReference{Name: "c"}, "x"
		}, nil, nil},
		{"moved", func(s *corev1.PersistentVolumeSpec) { s.PersistentVolumeSource.Local.Path = "/other" }, nil, []string{"Forbidden spec.persistentvolumesource"}},
		{"another mode", func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = ptr("Block") }, nil, []string{"Invalid volumeMode"}},
		{"other nodes", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("zone") }, nil, []string{"Invalid nodeAffinity"}},
		{"label with its final name", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("kubernetes.io/os") }, nil, nil},
		{"nodes later", nil, func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil }, nil},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolumeUpdate(volume(c.new), volume(c.old)), c.want...)
	}
}

func TestPersistentVolumeClaims(t *testing.T) {
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Metadata: kindtest.Meta("c", "d"), Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{Requests: kindtest.Amounts("storage", "5Gi")},
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
		{"nothing", func(c *corev1.PersistentVolumeClaim) { c.Spec = nil }, []string{"Required spec.accessModes", "Required spec.resources[storage]"}},
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
		{"class named otherwise than by the annotation", func(c *corev1.PersistentVolumeClaim) { annotated(c); class("b")(c) }, annotated, []string{"Forbidden spec"}},
		{"class moved from the annotation", class("old"), annotated, nil},
		{"annotation changed", nil, annotated, []string{"Invalid metadata.annotations.volume.beta.kubernetes.io/storage-class"}},
		{"another class", class("a"), class("b"), []string{"Forbidden spec"}},
		{"grown", sized("6Gi"), nil, []string{"Forbidden spec"}},
		{"grown when bound", bound("6Gi"), bound("5Gi"), nil},
		{"growth taken back", bound("4Gi"), bound("5Gi"), nil},
		{"shrunk to what it has", bound("3Gi"), bound("5Gi"), []string{"Forbidden spec.resources.requests.storage"}},
		{"other access", func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []string{"ReadOnlyMany"} }, nil, []string{"Forbidden spec"}},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolumeClaimUpdate(claim(c.new), claim(c.old)), c.want...)
	}
	kindtest.Judge(t, "status", core.ValidatePersistentVolumeClaimStatusUpdate(claim(func(c *corev1.PersistentVolumeClaim) {
		c.Status.Capacity, c.Status.AllocatedResources = kindtest.Amounts("storage", "-1"), kindtest.Amounts("cpu", "1", "storage", "-1")
		c.Status.AllocatedResourceStatuses = map[string]string{"storage": "Done"}
	}), claim(nil)), "Invalid status.capacity[storage]", "NotSupported status.allocatedResourceStatuses",
		"NotSupported status.allocatedResources", "Invalid status.allocatedResources[storage]")
}

func ptr[T any](v T) *T { return &v }
