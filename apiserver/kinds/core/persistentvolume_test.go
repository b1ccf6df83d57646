package core_test

import (
	"strings"
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

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
			Capacity: kindtest.Amounts("storage", "1Gi"), AccessModes: []string{"ReadWriteOnce"},
			NodeAffinity:           reachable("beta.kubernetes.io/os"),
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
		{"sizes", func(s *corev1.PersistentVolumeSpec) { s.Capacity = kindtest.Amounts("storage", "0", "cpu", "-1") },
			[]string{
				"NotSupported spec.capacity", "Invalid spec.capacity[cpu]", "Invalid spec.capacity[cpu]",
				"Invalid spec.capacity[storage]",
			}},
		{"local without nodes", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil },
			[]string{"Required spec.nodeAffinity"}},
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
		}, []string{"NotSupported spec.persistentVolumeReclaimPolicy", "Invalid spec.storageClassName",
			"NotSupported spec.volumeMode"}},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolume(volume(c.change)), c.want...)
	}
	for _, c := range []struct {
		name     string
		new, old func(*corev1.PersistentVolumeSpec)
		want     []string
	}{
		{"grown, claimed, classed", func(s *corev1.PersistentVolumeSpec) {
			s.Capacity, s.ClaimRef, s.StorageClassName = kindtest.Amounts("storage", "2Gi"), &corev1.ObjectReference{Name: "c"},
				"x"
		}, nil, nil},
		{"moved", func(s *corev1.PersistentVolumeSpec) { s.PersistentVolumeSource.Local.Path = "/other" }, nil,
			[]string{"Forbidden spec.persistentvolumesource"}},
		{"another mode", func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = ptr("Block") }, nil,
			[]string{"Invalid volumeMode"}},
		{"other nodes", func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("zone") }, nil,
			[]string{"Invalid nodeAffinity"}},
		{"label with its final name",
			func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = reachable("kubernetes.io/os") }, nil, nil},
		{"nodes later", nil, func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil }, nil},
	} {
		kindtest.Judge(t, c.name, core.ValidatePersistentVolumeUpdate(volume(c.new), volume(c.old)), c.want...)
	}
}
