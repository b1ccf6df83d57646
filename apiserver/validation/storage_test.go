package validation_test

import (
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object/storage"
)

func judge(t *testing.T, name string, got []apierrors.Cause, want ...string) {
	t.Helper()
	if g, w := fields(got), lines(want...); g != w {
		t.Errorf("%s: faults:\n%swant:\n%s", name, g, w)
	}
}

func reachable(key string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
		MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{"a"}}},
	}}}}
}

func TestPersistentVolumes(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolumeSpec)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{Metadata: meta("v", ""), Spec: &corev1.PersistentVolumeSpec{
			Capacity: amounts("storage", "1Gi"), AccessModes: []string{"ReadWriteOnce"}, NodeAffinity: reachable("beta.kubernetes.io/os"),
			PersistentVolumeSource: &corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt"}},
		}}
		defaults.PersistentVolume(v)
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
		{"sizes", func(s *corev1.PersistentVolumeSpec) { s.Capacity = amounts("storage", "0", "cpu", "-1") }, []string{
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
		judge(t, c.name, validation.PersistentVolume(volume(c.change)), c.want...)
	}
	for _, c := range []struct {
		name     string
		new, old func(*corev1.PersistentVolumeSpec)
		want     []string
	}{
		{"grown, claimed, classed", func(s *corev1.PersistentVolumeSpec) {
			s.Capacity, s.ClaimRef, s.StorageClassName = amounts("storage", "2Gi"), &corev1.ObjectReference{Name: "c"}, "x"
		}, nil, nil},
		{"moved", func(s *corev1.PersistentVolumeSpec) { s.PersistentVolumeSource.Local.Path = "/other" }, nil, []string{"Forbidden spec.persistentvolumesource"}},
		{"another mode", func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = ptr("Block") }, nil, []string{"Invalid volumeMode"}},
		{"other nodes", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("zone") }, nil, []string{"Invalid nodeAffinity"}},
		{"label with its final name", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("kubernetes.io/os") }, nil, nil},
		{"nodes later", nil, func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil }, nil},
	} {
		judge(t, c.name, validation.PersistentVolumeUpdate(volume(c.new), volume(c.old)), c.want...)
	}
}

func TestPersistentVolumeClaims(t *testing.T) {
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Metadata: meta("c", "d"), Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{Requests: amounts("storage", "5Gi")},
		}}
		defaults.PersistentVolumeClaim(c)
		if change != nil {
			change(c)
		}
		return c
	}
	sized := func(size string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = amounts("storage", size) }
	}
	bound := func(size string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = "v", "Bound", amounts("storage", "3Gi")
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
		judge(t, c.name, validation.PersistentVolumeClaim(claim(c.change)), c.want...)
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
		judge(t, c.name, validation.PersistentVolumeClaimUpdate(claim(c.new), claim(c.old)), c.want...)
	}
	judge(t, "status", validation.PersistentVolumeClaimStatusUpdate(claim(func(c *corev1.PersistentVolumeClaim) {
		c.Status.Capacity, c.Status.AllocatedResources = amounts("storage", "-1"), amounts("cpu", "1", "storage", "-1")
		c.Status.AllocatedResourceStatuses = map[string]string{"storage": "Done"}
	}), claim(nil)), "Invalid status.capacity[storage]", "NotSupported status.allocatedResourceStatuses",
		"NotSupported status.allocatedResources", "Invalid status.allocatedResources[storage]")
}

func TestStorageClasses(t *testing.T) {
	class := func(change func(*storagev1.StorageClass)) *storagev1.StorageClass {
		c := &storagev1.StorageClass{Metadata: meta("s", ""), Provisioner: "Example.com/P", Parameters: map[string]string{"a": "b"}}
		defaults.StorageClass(c)
		if change != nil {
			change(c)
		}
		return c
	}
	term := func(values ...string) *corev1.TopologySelectorTerm {
		return &corev1.TopologySelectorTerm{MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: values}}}
	}
	judge(t, "class", validation.StorageClass(class(nil)))
	judge(t, "nothing", validation.StorageClass(&storagev1.StorageClass{Metadata: meta("s", "")}), "Required provisioner", "Required volumeBindingMode")
	judge(t, "bad class", validation.StorageClass(class(func(c *storagev1.StorageClass) {
		c.Provisioner, c.ReclaimPolicy, c.VolumeBindingMode = "a b", ptr("Recycle"), ptr("Later")
		c.Parameters = map[string]string{"": strings.Repeat("x", 256<<10+1)}
		c.AllowedTopologies = []*corev1.TopologySelectorTerm{term("a", "b"), term("b", "a"), term("a", "a"), {}}
	})), "Invalid provisioner", "Invalid parameters", "TooLong parameters", "NotSupported reclaimPolicy", "NotSupported volumeBindingMode",
		"Duplicate allowedTopologies[1].matchLabelExpressions", "Duplicate allowedTopologies[2].matchLabelExpressions[0].values[1]",
		"Duplicate allowedTopologies[3].matchLabelExpressions")
	judge(t, "changes", validation.StorageClassUpdate(class(func(c *storagev1.StorageClass) {
		c.AllowVolumeExpansion, c.MountOptions, c.AllowedTopologies = ptr(true), []string{"ro"}, []*corev1.TopologySelectorTerm{term("a")}
	}), class(nil)))
	judge(t, "what stays", validation.StorageClassUpdate(class(func(c *storagev1.StorageClass) {
		c.Provisioner, c.Parameters, c.ReclaimPolicy, c.VolumeBindingMode = "p", nil, ptr("Retain"), ptr("WaitForFirstConsumer")
	}), class(nil)), "Invalid parameters", "Invalid provisioner", "Invalid reclaimPolicy", "Invalid volumeBindingMode")
}
