package podspec

import (
	"fmt"

	"monoplane.dev/apiserver/kinds/core/claimspec"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object/storage"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ephemeralVolume checks a claim that is to be made for the pod: it is named after the pod and the volume, and its
// metadata are labels and annotations alone.
func (v *Checker) ephemeralVolume(
	volume, p *validation.Path, t *corev1.PersistentVolumeClaimTemplate, name string,
) {
	defer v.claimName(volume, name)
	at := p.Child("volumeClaimTemplate")
	if t == nil {
		v.Required(at, "")
		return
	}
	m := t.GetMetadata()
	v.Annotations(at.Child("metadata").Child("annotations"), m.GetAnnotations())
	v.Labels(at.Child("metadata").Child("labels"), m.GetLabels())
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"name", m.GetName() != ""},
		{"generateName", m.GetGenerateName() != ""},
		{"namespace", m.GetNamespace() != ""},
		{"selfLink", m.GetSelfLink() != ""},
		{"uID", m.GetUid() != ""},
		{"resourceVersion", m.GetResourceVersion() != ""},
		{"generation", m.GetGeneration() != 0},
		{"creationTimestamp", isTime(m.GetCreationTimestamp())},
		{"deletionTimestamp", isTime(m.GetDeletionTimestamp())},
		{"deletionGracePeriodSeconds", m != nil && m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", len(m.GetOwnerReferences()) > 0},
		{"finalizers", len(m.GetFinalizers()) > 0},
		{"managedFields", len(m.GetManagedFields()) > 0},
	} {
		if x.set {
			v.Forbidden(at.Child("metadata").Child(x.name), "cannot be set")
		}
	}
	claimspec.Check(v.Faults, at.Child("spec"), t.GetSpec(), nil)
}

// isTime says whether a time is given: clients that speak protobuf send an empty one for none.
func isTime(t *metav1.Time) bool { return t.GetSeconds() != 0 || t.GetNanos() != 0 }

// claimName checks the name of the claim that is made for a volume, once the pod has a name.
func (v *Checker) claimName(volume *validation.Path, name string) {
	if v.pod == "" || name == "" {
		return
	}
	claim := storage.EphemeralClaim(v.pod, name)
	for _, wrong := range validation.WrongSubdomain(claim) {
		v.Invalid(volume.Child("name"), name, fmt.Sprintf("PVC name %q: %v", claim, wrong))
	}
}

// CheckClaimNames checks the names of the claims that are made for a pod. CheckSpec does so, too.
func (v *Checker) CheckClaimNames() {
	for i, vol := range v.spec.GetVolumes() {
		if vol.GetVolumeSource().GetEphemeral() != nil {
			v.claimName(v.at.Child("volumes").Index(i), vol.GetName())
		}
	}
}
