package podspec

import (
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
)

// checkVolumes checks the pod's volumes (VOL-1) and remembers the valid ones, which alone can be mounted.
func (v *Checker) checkVolumes(p *validation.Path) {
	if len(v.spec.GetVolumes()) > 0 {
		v.volumes = make(map[string]*corev1.VolumeSource, len(v.spec.GetVolumes()))
	}
	for i, vol := range v.spec.GetVolumes() {
		at, before := p.Index(i), v.Count()
		v.volumeSource(at, vol.GetName(), vol.GetVolumeSource())
		v.RequiredLabel(at.Child("name"), vol.GetName())
		if _, ok := v.volumes[vol.GetName()]; ok {
			v.Duplicate(at.Child("name"), vol.GetName())
		}
		if v.Count() == before {
			v.volumes[vol.GetName()] = vol.GetVolumeSource()
		}
	}
}

// volumeSource checks that a volume has one source.
func (v *Checker) volumeSource(p *validation.Path, name string, s *corev1.VolumeSource) {
	if e := s.GetEmptyDir(); e != nil && e.GetSizeLimit() != nil {
		if q, err := value.Quantity(e.GetSizeLimit()); err != nil || q.Sign() < 0 {
			v.Forbidden(p.Child("emptyDir").Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	}
	if i := s.GetIscsi(); i != nil && i.InitiatorName != nil &&
		len(name+":"+i.GetTargetPortal()) > validation.MaxPortalName {
		v.Invalid(p.Child("name"), name, validation.PortalNameTooLong)
	}
	set := validation.SourcesSet(s, "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore",
		"secret",
		"nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI",
		"fc",
		"flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
		"azureDisk", "storageos", "projected", "scaleIO", "csi", "ephemeral", "image")
	if len(set) == 0 {
		v.Required(p, "must specify a volume type")
		return
	}
	for _, other := range set[1:] {
		v.Forbidden(p.Child(other), "may not specify more than 1 volume type")
	}
	at := p.Child(set[0])
	switch set[0] {
	case "hostPath":
		v.HostPath(at, s.GetHostPath())
	case "secret":
		if s.GetSecret().GetSecretName() == "" {
			v.Required(at.Child("secretName"), "")
		}
		v.keyFiles(at, s.GetSecret().DefaultMode, s.GetSecret().GetItems())
	case "configMap":
		if s.GetConfigMap().GetLocalObjectReference().GetName() == "" {
			v.Required(at.Child("name"), "")
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
			v.Required(at.Child("claimName"), "")
		}
	case "nfs":
		v.NFS(at, s.GetNfs())
	case "csi":
		v.csi(at, s.GetCsi())
	case "image":
		if !v.template && s.GetImage().GetReference() == "" { // whoever makes pods of a template may fill it in
			v.Required(at.Child("reference"), "")
		}
		v.pullPolicy(at.Child("pullPolicy"), s.GetImage().GetPullPolicy())
	case "ephemeral":
		v.ephemeralVolume(p, at, s.GetEphemeral().GetVolumeClaimTemplate(), name)
	default:
		v.driver(p, set[0], s)
	}
}
