package validation

import (
	"net"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "monoplane.dev/api/core/v1"
)

// The checks in this file are of volumes whose drivers were once part of Kubernetes, or still are: disks of clouds and
// the like. Some of their messages have one form in pods and another in persistent volumes, which have getters of the
// same names.

const (
	maxUnit      = 255
	maxPartition = 255
	unitRange    = "must be between 0 and 255, inclusive"
	// partitionRange is what Kubernetes says although 0, the whole disk, is fine.
	partitionRange = "must be between 1 and 255, inclusive"
)

// RequiredTexts says of each of the fields that are empty, given in pairs of name and value, that it is missing.
func (f *Faults) RequiredTexts(p *Path, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			f.Required(p.Child(pairs[i]), "")
		}
	}
}

// Disk checks a disk of a cloud, of which a partition can be used.
func (f *Faults) Disk(p *Path, name, value string, partition int32) {
	f.RequiredTexts(p, name, value)
	if partition < 0 || partition > maxPartition {
		f.InvalidValue(p.Child("partition"), partition, partitionRange)
	}
}

// GitRepo checks a checkout.
func (f *Faults) GitRepo(p *Path, g *corev1.GitRepoVolumeSource) {
	f.RequiredTexts(p, "repository", g.GetRepository())
	f.Inside(p.Child("directory"), g.GetDirectory())
}

// iscsi is what ISCSI disks in pods and persistent volumes have in common.
type iscsi interface {
	GetTargetPortal() string
	GetIqn() string
	GetLun() int32
	GetChapAuthDiscovery() bool
	GetChapAuthSession() bool
}

// iscsiNames are the forms of the names of targets and initiators, by how they begin.
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// MaxPortalName is the most characters of a volume's name and its target's address together, when the initiator has a
// name.
const MaxPortalName = 64

// PortalNameTooLong is what is said of more.
const PortalNameTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if " +
	"iscsi.initiatorName is specified."

// ISCSI checks an iSCSI disk. Initiator is nil for none; unknown is what is said of a name of no known form.
func (f *Faults) ISCSI(p *Path, s iscsi, initiator *string, secret bool, unknown string) {
	f.RequiredTexts(p, "targetPortal", s.GetTargetPortal(), "iqn", s.GetIqn())
	if s.GetIqn() != "" {
		f.iscsiName(p.Child("iqn"), s.GetIqn(), unknown)
	}
	if s.GetLun() < 0 || s.GetLun() > maxUnit {
		f.InvalidValue(p.Child("lun"), s.GetLun(), unitRange)
	}
	if (s.GetChapAuthDiscovery() || s.GetChapAuthSession()) && !secret {
		f.Required(p.Child("secretRef"), "")
	}
	if initiator != nil {
		f.iscsiName(p.Child("initiatorname"), *initiator, unknown) // the path is Kubernetes'
	}
}

func (f *Faults) iscsiName(p *Path, name, unknown string) {
	form := iscsiNames[name[:min(3, len(name))]]
	if form == nil {
		f.Invalid(p, name, unknown)
	} else if !form.MatchString(name) {
		f.Invalid(p, name, "must be valid format")
	}
}

// FC checks a Fibre Channel disk.
func (f *Faults) FC(p *Path, s *corev1.FCVolumeSource) {
	targets, ids := s.GetTargetWWNs(), s.GetWwids()
	if len(targets) == 0 && len(ids) == 0 {
		f.Required(p.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	}
	if len(targets) == 0 {
		return
	}
	if len(ids) > 0 {
		f.InvalidValue(p.Child("targetWWNs"), targets, "targetWWNs and wwids can not be specified simultaneously")
	}
	if s.Lun == nil {
		f.Required(p.Child("lun"), "lun is required if targetWWNs is specified")
	} else if *s.Lun < 0 || *s.Lun > maxUnit {
		f.InvalidValue(p.Child("lun"), *s.Lun, unitRange)
	}
}

const maxTenant = 64

// Quobyte checks a Quobyte volume.
func (f *Faults) Quobyte(p *Path, s *corev1.QuobyteVolumeSource) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case s.GetRegistry() == "":
		f.Required(p.Child("registry"), pairs)
	case len(s.GetTenant()) > maxTenant:
		f.Required(p.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(s.GetRegistry(), ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				f.Invalid(p.Child("registry"), s.GetRegistry(), pairs)
			}
		}
	}
	f.RequiredTexts(p, "volume", s.GetVolume())
}

// Flocker checks a Flocker dataset.
func (f *Faults) Flocker(p *Path, s *corev1.FlockerVolumeSource) {
	name, uuid := s.GetDatasetName(), s.GetDatasetUUID()
	if name == "" && uuid == "" {
		f.Required(p, "one of datasetName and datasetUUID is required")
	}
	if name != "" && uuid != "" {
		f.Invalid(p, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(name, "/") {
		f.Invalid(p.Child("datasetName"), name, "must not contain '/'")
	}
}

// RBD checks a Ceph block device.
func (f *Faults) RBD(p *Path, monitors []string, image string) {
	f.Monitors(p, monitors)
	f.RequiredTexts(p, "image", image)
}

// Monitors checks the addresses of what serves a Ceph cluster.
func (f *Faults) Monitors(p *Path, monitors []string) {
	if len(monitors) == 0 {
		f.Required(p.Child("monitors"), "")
	}
}

// Flex checks a volume of an executable driver, whose options may not be named as if they were Kubernetes'.
func (f *Faults) Flex(p *Path, driver string, options map[string]string) {
	f.RequiredTexts(p, "driver", driver)
	for _, k := range Sorted(&Few{}, options) {
		domain, _, _ := strings.Cut(k, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			f.Invalid(p.Child("options").Key(k), k, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

// AzureDisk checks an Azure disk after its defaults.
func (f *Faults) AzureDisk(p *Path, s *corev1.AzureDiskVolumeSource) {
	const managed = "Managed"
	f.RequiredTexts(p, "diskName", s.GetDiskName(), "diskURI", s.GetDiskURI())
	if s.CachingMode != nil {
		f.OneOf(p.Child("cachingMode"), *s.CachingMode, "None", "ReadOnly", "ReadWrite")
	}
	if s.Kind == nil {
		return
	}
	f.OneOf(p.Child("kind"), *s.Kind, "Dedicated", managed, "Shared")
	begin, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == managed {
		begin = "/subscriptions/"
		form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.GetDiskURI(), begin) {
		f.Add(p.Child("diskURI"), field.NotSupported(nil, s.GetDiskURI(), []string{form}))
	}
}

// StorageOS checks a StorageOS volume.
func (f *Faults) StorageOS(p *Path, volume, namespace string) {
	f.RequiredLabel(p.Child("volumeName"), volume)
	if namespace != "" {
		f.Label(p.Child("volumeNamespace"), namespace)
	}
}
