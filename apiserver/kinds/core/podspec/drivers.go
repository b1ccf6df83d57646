package podspec

import (
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// driver checks a volume of a driver that nodes do not have: a pod with it waits there. The paths are Kubernetes'.
func (v *Checker) driver(p *validation.Path, name string, s *corev1.VolumeSource) {
	at := p.Child(name)
	switch name {
	case "gcePersistentDisk":
		v.Disk(p.Child("persistentDisk"), "pdName", s.GetGcePersistentDisk().GetPdName(),
			s.GetGcePersistentDisk().GetPartition())
	case "awsElasticBlockStore":
		v.Disk(at, "volumeID", s.GetAwsElasticBlockStore().GetVolumeID(), s.GetAwsElasticBlockStore().GetPartition())
	case "gitRepo":
		v.GitRepo(at, s.GetGitRepo())
	case "iscsi":
		v.ISCSI(at, s.GetIscsi(), s.GetIscsi().InitiatorName, s.GetIscsi().GetSecretRef() != nil,
			"must be valid format starting with iqn, eui, or naa")
	case "glusterfs":
		v.RequiredTexts(at, "endpoints", s.GetGlusterfs().GetEndpoints(), "path", s.GetGlusterfs().GetPath())
	case "rbd":
		v.RBD(at, s.GetRbd().GetMonitors(), s.GetRbd().GetImage())
	case "flexVolume":
		v.Flex(at, s.GetFlexVolume().GetDriver(), s.GetFlexVolume().GetOptions())
	case "cinder":
		v.RequiredTexts(at, "volumeID", s.GetCinder().GetVolumeID())
		v.secretName(at, s.GetCinder().GetSecretRef())
	case "cephfs":
		v.Monitors(at, s.GetCephfs().GetMonitors())
	case "flocker":
		v.Flocker(at, s.GetFlocker())
	case "fc":
		v.FC(at, s.GetFc())
	case "azureFile":
		v.RequiredTexts(at, "secretName", s.GetAzureFile().GetSecretName(), "shareName", s.GetAzureFile().GetShareName())
	case "vsphereVolume":
		v.RequiredTexts(at, "volumePath", s.GetVsphereVolume().GetVolumePath())
	case "quobyte":
		v.Quobyte(at, s.GetQuobyte())
	case "azureDisk":
		v.AzureDisk(at, s.GetAzureDisk())
	case "photonPersistentDisk":
		v.RequiredTexts(at, "pdID", s.GetPhotonPersistentDisk().GetPdID())
	case "portworxVolume":
		v.RequiredTexts(at, "volumeID", s.GetPortworxVolume().GetVolumeID())
	case "scaleIO":
		v.RequiredTexts(at, "gateway", s.GetScaleIO().GetGateway(), "system", s.GetScaleIO().GetSystem(),
			"volumeName", s.GetScaleIO().GetVolumeName())
	case "storageos":
		v.StorageOS(at, s.GetStorageos().GetVolumeName(), s.GetStorageos().GetVolumeNamespace())
		v.secretName(at, s.GetStorageos().GetSecretRef())
	}
}

// secretName checks that a reference to a secret, if there is one, has a name.
func (v *Checker) secretName(p *validation.Path, ref *corev1.LocalObjectReference) {
	if ref != nil {
		v.RequiredTexts(p.Child("secretRef"), "name", ref.GetName())
	}
}
