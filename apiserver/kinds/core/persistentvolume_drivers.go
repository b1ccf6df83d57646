package core

import (
	"slices"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// checkPersistentDriver checks a volume of a driver that nodes do not have: a pod with it waits there. The paths are
// Kubernetes'.
func checkPersistentDriver(
	f *validation.Faults, p *validation.Path, kind, name string, s *corev1.PersistentVolumeSource,
) {
	at := p.Child(kind)
	switch kind {
	case "gcePersistentDisk":
		f.Disk(p.Child("persistentDisk"), "pdName", s.GetGcePersistentDisk().GetPdName(),
			s.GetGcePersistentDisk().GetPartition())
	case "awsElasticBlockStore":
		f.Disk(at, "volumeID", s.GetAwsElasticBlockStore().GetVolumeID(), s.GetAwsElasticBlockStore().GetPartition())
	case "glusterfs":
		checkPersistentGluster(f, at, s.GetGlusterfs())
	case "rbd":
		f.RBD(at, s.GetRbd().GetMonitors(), s.GetRbd().GetImage())
	case "iscsi":
		checkPersistentISCSI(f, at, name, s.GetIscsi())
	case "cinder":
		f.RequiredTexts(at, "volumeID", s.GetCinder().GetVolumeID())
		if ref := s.GetCinder().GetSecretRef(); ref != nil {
			f.RequiredTexts(at.Child("secretRef"), "name", ref.GetName(), "namespace", ref.GetNamespace())
		}
	case "cephfs":
		f.Monitors(at, s.GetCephfs().GetMonitors())
	case "fc":
		f.FC(at, s.GetFc())
	case "flocker":
		f.Flocker(at, s.GetFlocker())
	case "flexVolume":
		f.Flex(at, s.GetFlexVolume().GetDriver(), s.GetFlexVolume().GetOptions())
	case "azureFile":
		a := s.GetAzureFile()
		f.RequiredTexts(at, "secretName", a.GetSecretName(), "shareName", a.GetShareName())
		if a.SecretNamespace != nil {
			f.RequiredTexts(at, "secretNamespace", a.GetSecretNamespace())
		}
	case "vsphereVolume":
		f.RequiredTexts(at, "volumePath", s.GetVsphereVolume().GetVolumePath())
	case "quobyte":
		f.Quobyte(at, s.GetQuobyte())
	case "azureDisk":
		f.AzureDisk(at, s.GetAzureDisk())
	case "photonPersistentDisk":
		f.RequiredTexts(at, "pdID", s.GetPhotonPersistentDisk().GetPdID())
	case "portworxVolume":
		f.RequiredTexts(at, "volumeID", s.GetPortworxVolume().GetVolumeID())
	case "scaleIO":
		f.RequiredTexts(at, "gateway", s.GetScaleIO().GetGateway(), "system", s.GetScaleIO().GetSystem(),
			"volumeName", s.GetScaleIO().GetVolumeName())
	case "storageos":
		f.StorageOS(at, s.GetStorageos().GetVolumeName(), s.GetStorageos().GetVolumeNamespace())
		if ref := s.GetStorageos().GetSecretRef(); ref != nil {
			f.RequiredTexts(at.Child("secretRef"), "name", ref.GetName(), "namespace", ref.GetNamespace())
		}
	}
}

func checkPersistentGluster(f *validation.Faults, p *validation.Path, g *corev1.GlusterfsPersistentVolumeSource) {
	f.RequiredTexts(p, "endpoints", g.GetEndpoints(), "path", g.GetPath())
	switch at := p.Child("endpointsNamespace"); {
	case g.EndpointsNamespace == nil:
	case g.GetEndpointsNamespace() == "":
		f.Invalid(at, "", "if the endpointnamespace is set, it must be a valid namespace name")
	default:
		f.Label(at, g.GetEndpointsNamespace())
	}
}

func checkPersistentISCSI(
	f *validation.Faults, p *validation.Path, name string, s *corev1.ISCSIPersistentVolumeSource,
) {
	if s.InitiatorName != nil && len(name+":"+s.GetTargetPortal()) > validation.MaxPortalName {
		f.Invalid(p.Child("targetportal"), s.GetTargetPortal(), validation.PortalNameTooLong)
	}
	f.ISCSI(p, s, s.InitiatorName, s.GetSecretRef() != nil, "must be valid format")
	if s.GetSecretRef() != nil {
		f.RequiredTexts(p.Child("secretRef"), "name", s.GetSecretRef().GetName())
	}
}

// optionDrivers are the volumes that may have the old annotation with mount options.
var optionDrivers = []string{"nfs", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "rbd", "quobyte",
	"iscsi", "cinder", "cephfs", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk"}

func takesMountOptions(s *corev1.PersistentVolumeSource) bool {
	return slices.ContainsFunc(validation.SourcesSet(s, optionDrivers...),
		func(name string) bool { return slices.Contains(optionDrivers, name) })
}
