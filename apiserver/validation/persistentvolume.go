package validation

import (
	"path"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// mountOptionsAnnotation is the old way to give mount options, for the drivers of that time.
const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

// PersistentVolume checks a volume that is to be created.
func PersistentVolume(v *corev1.PersistentVolume) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.persistentVolume(v, nil)
	}
	return f.causes()
}

// PersistentVolumeUpdate checks that a change of a volume is allowed: where its storage is, and how it is seen, stays;
// so does its node affinity once it is there.
func PersistentVolumeUpdate(new, old *corev1.PersistentVolume) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.persistentVolume(new, old)
		now, was := volumeSpecOf(new), volumeSpecOf(old)
		if !sameSource(now.GetPersistentVolumeSource(), was.GetPersistentVolumeSource()) {
			f.forbidden(f.root("spec").Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation")
		}
		fixed(&f, f.root("volumeMode"), now.VolumeMode, was.VolumeMode) // Kubernetes' path.
		if was.GetNodeAffinity() != nil && !sameAffinity(now.GetNodeAffinity(), was.GetNodeAffinity()) {
			f.invalid(f.root("nodeAffinity"), "", immutable+", except for updating from beta label to GA")
		}
	}
	return f.causes()
}

// PersistentVolumeStatusUpdate checks a change of a volume's status. Like Kubernetes it looks at the metadata alone.
func PersistentVolumeStatusUpdate(new, old *corev1.PersistentVolume) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	}
	return f.causes()
}

// volumeSpecOf returns the spec of a volume, which is empty rather than nil.
func volumeSpecOf(v *corev1.PersistentVolume) *corev1.PersistentVolumeSpec {
	if s := v.GetSpec(); s != nil {
		return s
	}
	return &corev1.PersistentVolumeSpec{}
}

func (f *faults) persistentVolume(v, old *corev1.PersistentVolume) {
	f.core(v.GetMetadata(), old.GetMetadata(), false, NameIsSubdomain)
	f.volumeSpec(f.root("spec"), v.GetSpec(), old.GetSpec())
	source := v.GetSpec().GetPersistentVolumeSource()
	if _, ok := v.GetMetadata().GetAnnotations()[mountOptionsAnnotation]; ok && source.GetNfs() == nil {
		f.forbidden(f.root("metadata").Child("annotations").Child(mountOptionsAnnotation),
			"may not specify mount options for this volume type")
	}
}

func (f *faults) volumeSpec(p *fieldPath, s, old *corev1.PersistentVolumeSpec) {
	if len(s.GetAccessModes()) == 0 {
		f.required(p.Child("accessModes"), "")
	}
	f.accessModes(p.Child("accessModes"), s.GetAccessModes())
	f.capacity(p.Child("capacity"), s)
	if policy := s.GetPersistentVolumeReclaimPolicy(); policy != "" {
		f.oneOf(p.Child("persistentVolumeReclaimPolicy"), policy, "Delete", "Recycle", "Retain")
	}
	if a := s.GetNodeAffinity(); a != nil {
		f.volumeAffinity(p.Child("nodeAffinity"), a, old.GetNodeAffinity())
	}
	f.persistentSource(p, s)
	f.className(p.Child("storageClassName"), s.GetStorageClassName())
	if s != nil {
		f.volumeMode(p.Child("volumeMode"), s.VolumeMode)
	}
}

// capacity checks that a volume has a size and nothing else.
func (f *faults) capacity(p *fieldPath, s *corev1.PersistentVolumeSpec) {
	names := sorted(&few{}, s.GetCapacity())
	if len(names) == 0 {
		f.required(p, "")
	}
	if _, ok := s.GetCapacity()[resources.Storage]; !ok || len(names) > 1 {
		f.add(p, field.NotSupported(nil, strings.Join(names, ","), []string{resources.Storage}))
	}
	for _, name := range names {
		f.size(p.Key(name), s.GetCapacity()[name], true)
	}
}

// volumeAffinity checks the nodes that can reach a volume. Values that no label can have are tolerated if the volume
// had such before.
func (f *faults) volumeAffinity(p *fieldPath, a, old *corev1.VolumeNodeAffinity) {
	if a.GetRequired() == nil {
		f.required(p.Child("required"), "must specify required node constraints")
		return
	}
	terms := p.Child("required").Child("nodeSelectorTerms")
	if len(a.GetRequired().GetNodeSelectorTerms()) == 0 {
		f.required(terms, "must have at least one node selector term")
	}
	for i, t := range a.GetRequired().GetNodeSelectorTerms() {
		f.nodeTerm(terms.Index(i), t, !impossibleValue(old))
	}
}

func impossibleValue(a *corev1.VolumeNodeAffinity) bool {
	for _, t := range a.GetRequired().GetNodeSelectorTerms() {
		for _, r := range t.GetMatchExpressions() {
			for _, v := range r.GetValues() {
				if len(wrongLabelValue(v)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// persistentSource checks that a volume has one source. Those that the support option refuses are only counted.
func (f *faults) persistentSource(p *fieldPath, s *corev1.PersistentVolumeSpec) {
	source := s.GetPersistentVolumeSource()
	set := sourcesSet(source, "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
		"cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
		"azureDisk", "scaleIO", "local", "storageos", "csi")
	if len(set) == 0 {
		f.required(p, "must specify a volume type")
		return
	}
	for _, name := range set[1:] {
		f.forbidden(p.Child(name), "may not specify more than 1 volume type")
	}
	at := p.Child(set[0])
	switch set[0] {
	case "hostPath":
		f.hostPath(at, source.GetHostPath())
	case "nfs":
		f.nfs(at, source.GetNfs())
	case "local":
		f.local(at, source.GetLocal())
		if s.GetNodeAffinity() == nil {
			f.required(p.Child("nodeAffinity"), "Local volume requires node affinity")
		}
	case "csi":
		f.persistentCSI(at, source.GetCsi())
	}
	if h := source.GetHostPath(); h != nil && path.Clean(h.GetPath()) == "/" && s.GetPersistentVolumeReclaimPolicy() == "Recycle" {
		f.forbidden(p.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

func (f *faults) local(p *fieldPath, l *corev1.LocalVolumeSource) {
	if l.GetPath() == "" {
		f.required(p.Child("path"), "")
		return
	}
	f.noBacksteps(p.Child("path"), l.GetPath())
}

func (f *faults) persistentCSI(p *fieldPath, c *corev1.CSIPersistentVolumeSource) {
	f.driverName(p.Child("driver"), c.GetDriver())
	if c.GetVolumeHandle() == "" {
		f.required(p.Child("volumeHandle"), "")
	}
	f.secretRef(p.Child("controllerPublishSecretRef"), c.GetControllerPublishSecretRef())
	f.secretRef(p.Child("controllerExpandSecretRef"), c.GetControllerExpandSecretRef())
	f.secretRef(p.Child("nodePublishSecretRef"), c.GetNodePublishSecretRef())
	f.secretRef(p.Child("nodeExpandSecretRef"), c.GetNodeExpandSecretRef())
}

// sameSource compares where two volumes have their storage. A secret for expansion may be added.
func sameSource(new, old *corev1.PersistentVolumeSource) bool {
	if new.GetCsi().GetControllerExpandSecretRef() != nil && old.GetCsi() != nil && old.GetCsi().GetControllerExpandSecretRef() == nil {
		new = proto.CloneOf(new)
		new.Csi.ControllerExpandSecretRef = nil
	}
	return Equal(new, old)
}

// stableLabel gives the names that well-known labels of nodes had before they were final their final ones.
func stableLabel(beta string) string {
	switch beta {
	case "failure-domain.beta.kubernetes.io/zone":
		return "topology.kubernetes.io/zone"
	case "failure-domain.beta.kubernetes.io/region":
		return "topology.kubernetes.io/region"
	case "beta.kubernetes.io/os":
		return "kubernetes.io/os"
	case "beta.kubernetes.io/arch":
		return "kubernetes.io/arch"
	case "beta.kubernetes.io/instance-type":
		return "node.kubernetes.io/instance-type"
	}
	return ""
}

// sameAffinity compares node affinities, but for labels that were given their final names.
func sameAffinity(new, old *corev1.VolumeNodeAffinity) bool {
	if Equal(new, old) {
		return true
	}
	old = proto.CloneOf(old)
	terms := new.GetRequired().GetNodeSelectorTerms()
	for i, t := range old.GetRequired().GetNodeSelectorTerms() {
		if i >= len(terms) {
			return false
		}
		rename(t.GetMatchExpressions(), terms[i].GetMatchExpressions())
		rename(t.GetMatchFields(), terms[i].GetMatchFields())
	}
	return Equal(new, old)
}

func rename(old, new []*corev1.NodeSelectorRequirement) {
	for i, r := range old {
		if i < len(new) && new[i].GetKey() != "" && stableLabel(r.GetKey()) == new[i].GetKey() {
			r.Key = new[i].GetKey()
		}
	}
}
