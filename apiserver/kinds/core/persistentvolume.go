package core

import (
	"path"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/claimspec"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// PersistentVolume describes the kind.
func PersistentVolume(c define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.PersistentVolume]{
		Kind:       corev1.PersistentVolumeKind,
		Default:    DefaultPersistentVolume,
		DefaultNew: DefaultNewPersistentVolume,
		Validate:   ValidatePersistentVolume,
		Warn:       warningsOfPersistentVolume,
		Main: registry.TypedUpdateRules[*corev1.PersistentVolume]{
			Apply: func(asked, live *corev1.PersistentVolume) *corev1.PersistentVolume {
				next := &corev1.PersistentVolume{Metadata: metadata(asked, live), Spec: object.Clone(asked.GetSpec())}
				DefaultPersistentVolume(next)
				keepVolumeProtection(next, live)
				next.Status = live.Status
				return next
			},
			Validate: ValidatePersistentVolumeUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.PersistentVolume]{
			"status": {
				Apply: func(asked, live *corev1.PersistentVolume) *corev1.PersistentVolume {
					next := &corev1.PersistentVolume{Status: object.Clone(asked.GetStatus())}
					DefaultPersistentVolume(next)
					next.Spec = live.Spec
					stampPhase(c.Deps.Clock, next.Status, live.GetStatus())
					return next
				},
				Validate: ValidatePersistentVolumeStatusUpdate,
			},
		},
		Fields: map[string]func(*corev1.PersistentVolume) string{
			"name": func(o *corev1.PersistentVolume) string { return o.GetMetadata().GetName() },
		},
		Table: volumeTable(),
	}.Strategy()}
}

// DefaultPersistentVolume fills in a volume; call it on create, on update and on a status update.
func DefaultPersistentVolume(v *corev1.PersistentVolume) {
	defaults.Message(&v.Metadata)
	defaults.Message(&v.Spec)
	defaults.Message(&v.Status)
	defaults.Set(&v.Spec.PersistentVolumeReclaimPolicy, "Retain")
	defaults.SetPtr(&v.Spec.VolumeMode, claimspec.Filesystem)
	if h := v.Spec.PersistentVolumeSource.GetHostPath(); h != nil {
		defaults.SetPtr(&h.Type, "")
	}
	if source := v.Spec.PersistentVolumeSource; source != nil {
		podspec.DefaultPersistentDrivers(source)
	}
	defaults.Round(v.Spec.Capacity)
	defaults.Set(&v.Status.Phase, phasePending)
}

// DefaultNewPersistentVolume is DefaultPersistentVolume plus what creation adds: protection and a fresh status. Call
// it when the creation time is known.
func DefaultNewPersistentVolume(v *corev1.PersistentVolume) {
	v.Status = nil
	DefaultPersistentVolume(v)
	v.Status.LastPhaseTransitionTime = v.Metadata.CreationTimestamp
	protect(v.Metadata, storage.VolumeProtection)
}

// keepVolumeProtection puts back the protection of a volume that is not being deleted, for clients that write the
// manifest it was made of: without it the volume would go while its claim is bound. In Kubernetes a controller does so
// a moment later.
func keepVolumeProtection(next, live *corev1.PersistentVolume) {
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		protect(next.Metadata, storage.VolumeProtection)
	}
}

// mountOptionsAnnotation is the old way to give mount options, for the drivers of that time.
const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

// ValidatePersistentVolume checks a volume that is to be created.
func ValidatePersistentVolume(v *corev1.PersistentVolume) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkPersistentVolume(f, v, nil)
	}
	return f.Causes()
}

// ValidatePersistentVolumeUpdate checks that a change of a volume is allowed: where its storage is, and how it is
// seen, stays; so does its node affinity once it is there.
func ValidatePersistentVolumeUpdate(new, old *corev1.PersistentVolume) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkPersistentVolume(f, new, old)
		now, was := volumeSpecOf(new), volumeSpecOf(old)
		if !sameSource(now.GetPersistentVolumeSource(), was.GetPersistentVolumeSource()) {
			f.Forbidden(f.Root("spec").Child("persistentvolumesource"),
				"spec.persistentvolumesource is immutable after creation")
		}
		validation.Fixed(f, f.Root("volumeMode"), now.VolumeMode, was.VolumeMode) // Kubernetes' path.
		if was.GetNodeAffinity() != nil && !sameAffinity(now.GetNodeAffinity(), was.GetNodeAffinity()) {
			f.Invalid(f.Root("nodeAffinity"), "", validation.Immutable+", except for updating from beta label to GA")
		}
		if was.VolumeAttributesClassName != nil && now.VolumeAttributesClassName == nil {
			f.Forbidden(f.Root("spec").Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
		}
	}
	return f.Causes()
}

// ValidatePersistentVolumeStatusUpdate checks a change of a volume's status. Like Kubernetes it looks at the metadata
// alone.
func ValidatePersistentVolumeStatusUpdate(new, old *corev1.PersistentVolume) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	}
	return f.Causes()
}

// volumeSpecOf returns the spec of a volume, which is empty rather than nil.
func volumeSpecOf(v *corev1.PersistentVolume) *corev1.PersistentVolumeSpec {
	if s := v.GetSpec(); s != nil {
		return s
	}
	return &corev1.PersistentVolumeSpec{}
}

func checkPersistentVolume(f *validation.Faults, v, old *corev1.PersistentVolume) {
	f.CoreMeta(v.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
	checkVolumeSpec(f, f.Root("spec"), v.GetMetadata().GetName(), v.GetSpec(), old.GetSpec())
	_, options := v.GetMetadata().GetAnnotations()[mountOptionsAnnotation]
	if options && !takesMountOptions(v.GetSpec().GetPersistentVolumeSource()) {
		f.Forbidden(f.Root("metadata").Child("annotations").Child(mountOptionsAnnotation),
			"may not specify mount options for this volume type")
	}
}

func checkVolumeSpec(f *validation.Faults, p *validation.Path, name string, s, old *corev1.PersistentVolumeSpec) {
	if len(s.GetAccessModes()) == 0 {
		f.Required(p.Child("accessModes"), "")
	}
	claimspec.CheckAccessModes(f, p.Child("accessModes"), s.GetAccessModes())
	checkCapacity(f, p.Child("capacity"), s)
	if policy := s.GetPersistentVolumeReclaimPolicy(); policy != "" {
		f.OneOf(p.Child("persistentVolumeReclaimPolicy"), policy, "Delete", "Recycle", "Retain")
	}
	if a := s.GetNodeAffinity(); a != nil {
		checkVolumeAffinity(f, p.Child("nodeAffinity"), a, old.GetNodeAffinity())
	}
	checkPersistentSource(f, p, name, s)
	claimspec.CheckClassName(f, p.Child("storageClassName"), s.GetStorageClassName())
	if s == nil {
		return
	}
	claimspec.CheckVolumeMode(f, p.Child("volumeMode"), s.VolumeMode)
	if s.VolumeAttributesClassName != nil {
		checkAttributesClass(f, p, s)
	}
}

// checkAttributesClass checks the class of changeable attributes, which only volumes of CSI drivers have.
func checkAttributesClass(f *validation.Faults, p *validation.Path, s *corev1.PersistentVolumeSpec) {
	at := p.Child("volumeAttributesClassName")
	if s.GetVolumeAttributesClassName() == "" {
		f.Required(at, "an empty string is disallowed")
	}
	claimspec.CheckClassName(f, at, s.GetVolumeAttributesClassName())
	if s.GetPersistentVolumeSource().GetCsi() == nil {
		f.Required(p.Child("csi"), "has to be specified when using volumeAttributesClassName")
	}
}

// checkCapacity checks that a volume has a size and nothing else.
func checkCapacity(f *validation.Faults, p *validation.Path, s *corev1.PersistentVolumeSpec) {
	names := validation.Sorted(&validation.Few{}, s.GetCapacity())
	if len(names) == 0 {
		f.Required(p, "")
	}
	if _, ok := s.GetCapacity()[resources.Storage]; !ok || len(names) > 1 {
		f.Add(p, field.NotSupported(nil, strings.Join(names, ","), []string{resources.Storage}))
	}
	for _, name := range names {
		checkSize(f, p.Key(name), s.GetCapacity()[name], true)
	}
}

// checkVolumeAffinity checks the nodes that can reach a volume. Values that no label can have are tolerated if the
// volume had such before.
func checkVolumeAffinity(f *validation.Faults, p *validation.Path, a, old *corev1.VolumeNodeAffinity) {
	if a.GetRequired() == nil {
		f.Required(p.Child("required"), "must specify required node constraints")
		return
	}
	terms := p.Child("required").Child("nodeSelectorTerms")
	if len(a.GetRequired().GetNodeSelectorTerms()) == 0 {
		f.Required(terms, "must have at least one node selector term")
	}
	for i, t := range a.GetRequired().GetNodeSelectorTerms() {
		f.NodeTerm(terms.Index(i), t, !impossibleValue(old))
	}
}

func impossibleValue(a *corev1.VolumeNodeAffinity) bool {
	for _, t := range a.GetRequired().GetNodeSelectorTerms() {
		for _, r := range t.GetMatchExpressions() {
			for _, v := range r.GetValues() {
				if len(validation.WrongLabelValue(v)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// checkPersistentSource checks that a volume has one source.
func checkPersistentSource(f *validation.Faults, p *validation.Path, name string, s *corev1.PersistentVolumeSpec) {
	source := s.GetPersistentVolumeSource()
	set := validation.SourcesSet(source, "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker",
		"nfs", "rbd", "quobyte", "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume",
		"photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi")
	if len(set) == 0 {
		f.Required(p, "must specify a volume type")
		return
	}
	for _, other := range set[1:] {
		if other == "flexVolume" { // which Kubernetes looks into in any case
			checkPersistentDriver(f, p, other, name, source)
			continue
		}
		f.Forbidden(p.Child(other), "may not specify more than 1 volume type")
	}
	at := p.Child(set[0])
	switch set[0] {
	case "hostPath":
		f.HostPath(at, source.GetHostPath())
	case "nfs":
		f.NFS(at, source.GetNfs())
	case "local":
		checkLocal(f, at, source.GetLocal())
		if s.GetNodeAffinity() == nil {
			f.Required(p.Child("nodeAffinity"), "Local volume requires node affinity")
		}
	case "csi":
		checkPersistentCSI(f, at, source.GetCsi())
	default:
		checkPersistentDriver(f, p, set[0], name, source)
	}
	recycle := s.GetPersistentVolumeReclaimPolicy() == "Recycle"
	if h := source.GetHostPath(); h != nil && path.Clean(h.GetPath()) == "/" && recycle {
		f.Forbidden(p.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

func checkLocal(f *validation.Faults, p *validation.Path, l *corev1.LocalVolumeSource) {
	if l.GetPath() == "" {
		f.Required(p.Child("path"), "")
		return
	}
	f.NoBacksteps(p.Child("path"), l.GetPath())
}

func checkPersistentCSI(f *validation.Faults, p *validation.Path, c *corev1.CSIPersistentVolumeSource) {
	f.DriverName(p.Child("driver"), c.GetDriver())
	if c.GetVolumeHandle() == "" {
		f.Required(p.Child("volumeHandle"), "")
	}
	checkSecretRef(f, p.Child("controllerPublishSecretRef"), c.GetControllerPublishSecretRef())
	checkSecretRef(f, p.Child("controllerExpandSecretRef"), c.GetControllerExpandSecretRef())
	checkSecretRef(f, p.Child("nodePublishSecretRef"), c.GetNodePublishSecretRef())
	checkSecretRef(f, p.Child("nodeExpandSecretRef"), c.GetNodeExpandSecretRef())
}

// sameSource compares where two volumes have their storage. A secret for expansion may be added.
func sameSource(new, old *corev1.PersistentVolumeSource) bool {
	if new.GetCsi().GetControllerExpandSecretRef() != nil && old.GetCsi() != nil &&
		old.GetCsi().GetControllerExpandSecretRef() == nil {
		new = proto.CloneOf(new)
		new.Csi.ControllerExpandSecretRef = nil
	}
	return validation.Equal(new, old)
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
	if validation.Equal(new, old) {
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
	return validation.Equal(new, old)
}

func rename(old, new []*corev1.NodeSelectorRequirement) {
	for i, r := range old {
		if i < len(new) && new[i].GetKey() != "" && stableLabel(r.GetKey()) == new[i].GetKey() {
			r.Key = new[i].GetKey()
		}
	}
}

// volumeTable is what kubectl get shows.
func volumeTable() define.Columns[*corev1.PersistentVolume] {
	return define.Columns[*corev1.PersistentVolume]{
		define.Text("Capacity", "Size.", func(o *corev1.PersistentVolume) string {
			return sizeText(o.GetSpec().GetCapacity())
		}),
		define.Text("Access Modes", "Ways in which it can be mounted.", func(o *corev1.PersistentVolume) string {
			return shortModes(o.GetSpec().GetAccessModes())
		}),
		define.Text("Reclaim Policy", "What becomes of the storage when its claim goes.",
			func(o *corev1.PersistentVolume) string {
				return o.GetSpec().GetPersistentVolumeReclaimPolicy()
			}),
		define.Text("Status", "Whether it is free, bound or released.", func(o *corev1.PersistentVolume) string {
			return storagePhase(o, o.GetStatus().GetPhase())
		}),
		define.Text("Claim", "Claim that has it.", func(o *corev1.PersistentVolume) string {
			ref := o.GetSpec().GetClaimRef()
			if ref == nil {
				return ""
			}
			return ref.GetNamespace() + "/" + ref.GetName()
		}),
		define.Text("StorageClass", "Class that it belongs to.", storage.ClassOfVolume),
		define.Text("VolumeAttributesClass", "Class of changeable attributes.", func(o *corev1.PersistentVolume) string {
			return define.OrUnset(o.GetSpec().GetVolumeAttributesClassName())
		}),
		define.Text("Reason", "Why it is in its phase.", func(o *corev1.PersistentVolume) string {
			return o.GetStatus().GetReason()
		}),
		define.Age[*corev1.PersistentVolume](),
		define.Text("VolumeMode", "Whether it holds files or is a device.", func(o *corev1.PersistentVolume) string {
			return define.OrUnset(o.GetSpec().GetVolumeMode())
		}).Wide(),
	}
}

// stampPhase notes when the phase changes, unless the writer says when it did.
func stampPhase(now clock.PassiveClock, next, live *corev1.PersistentVolumeStatus) {
	said, had := next.LastPhaseTransitionTime, live.GetLastPhaseTransitionTime()
	switch {
	case next.GetPhase() == live.GetPhase():
		if said == nil {
			next.LastPhaseTransitionTime = had
		}
	case said == nil || value.GoTime(said).Equal(value.GoTime(had)):
		next.LastPhaseTransitionTime = value.Time(now.Now())
	}
}
