package validation

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec/value"
)

// checkVolumes checks the pod's volumes (VOL-1) and remembers the valid ones, which alone can be mounted.
func (v *pod) checkVolumes(p *fieldPath) {
	if len(v.spec.GetVolumes()) > 0 {
		v.volumes = make(map[string]*corev1.VolumeSource, len(v.spec.GetVolumes()))
	}
	for i, vol := range v.spec.GetVolumes() {
		at, before := p.Index(i), v.count()
		v.volumeSource(at, vol.GetVolumeSource())
		v.requiredLabel(at.Child("name"), vol.GetName())
		if _, ok := v.volumes[vol.GetName()]; ok {
			v.duplicate(at.Child("name"), vol.GetName())
		}
		if v.count() == before {
			v.volumes[vol.GetName()] = vol.GetVolumeSource()
		}
	}
}

// volumeSource checks that a volume has one source. The drivers that Kubernetes itself removed, and those
// that the support option refuses for now, are only counted.
func (v *pod) volumeSource(p *fieldPath, s *corev1.VolumeSource) {
	if e := s.GetEmptyDir(); e != nil && e.GetSizeLimit() != nil {
		if q, err := value.Quantity(e.GetSizeLimit()); err != nil || q.Sign() < 0 {
			v.forbidden(p.Child("emptyDir").Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	}
	set := sourcesSet(s, "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
		"glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
		"flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
		"azureDisk", "storageos", "projected", "scaleIO", "csi", "ephemeral", "image")
	if len(set) == 0 {
		v.required(p, "must specify a volume type")
		return
	}
	for _, name := range set[1:] {
		v.forbidden(p.Child(name), "may not specify more than 1 volume type")
	}
	at := p.Child(set[0])
	switch set[0] {
	case "hostPath":
		v.hostPath(at, s.GetHostPath())
	case "secret":
		if s.GetSecret().GetSecretName() == "" {
			v.required(at.Child("secretName"), "")
		}
		v.keyFiles(at, s.GetSecret().DefaultMode, s.GetSecret().GetItems())
	case "configMap":
		if s.GetConfigMap().GetLocalObjectReference().GetName() == "" {
			v.required(at.Child("name"), "")
		}
		v.keyFiles(at, s.GetConfigMap().DefaultMode, s.GetConfigMap().GetItems())
	case "downwardAPI":
		v.mode(at.Child("defaultMode"), s.GetDownwardAPI().DefaultMode)
		for _, file := range s.GetDownwardAPI().GetItems() {
			v.downwardFile(at, file)
		}
	case "projected":
		v.mode(at.Child("defaultMode"), s.GetProjected().DefaultMode)
		v.projected(at, s.GetProjected())
	case "persistentVolumeClaim":
		if s.GetPersistentVolumeClaim().GetClaimName() == "" {
			v.required(at.Child("claimName"), "")
		}
	case "nfs":
		v.nfs(at, s.GetNfs())
	case "csi":
		v.csi(at, s.GetCsi())
	case "image":
		if s.GetImage().GetReference() == "" {
			v.required(at.Child("reference"), "")
		}
		v.pullPolicy(at.Child("pullPolicy"), s.GetImage().GetPullPolicy())
	}
}

// sourcesSet returns the names of the sources that are set, in the order that is given, in which Kubernetes looks at
// them.
func sourcesSet(s proto.Message, order ...string) []string {
	var names []string
	s.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		names = append(names, string(fd.Name()))
		return true
	})
	if len(names) < 2 {
		return names
	}
	ordered := make([]string, 0, len(names))
	for _, n := range order {
		if slices.Contains(names, n) {
			ordered = append(ordered, n)
		}
	}
	return ordered
}
