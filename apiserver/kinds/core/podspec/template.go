package podspec

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// DefaultTemplate fills in a template of pods; call it on create and on update. What pods get beyond Default is left
// to the pods that are made of it.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	defaults.Message(&t.Metadata)
	defaults.Message(&t.Spec)
	Default(t.Spec)
}

// CheckTemplate checks a template of pods at a path, as it is after DefaultTemplate, and adds what is wrong to f.
func CheckTemplate(f *validation.Faults, at *validation.Path, t *corev1.PodTemplateSpec) {
	spec, set := t.GetSpec(), t.GetMetadata().GetAnnotations()
	if spec == nil {
		spec = &corev1.PodSpec{}
	}
	v := NewChecker(f, at.Child("spec"), "", spec)
	v.template = true
	v.Labels(at.Child("labels"), t.GetMetadata().GetLabels())
	v.Annotations(at.Child("annotations"), set)
	v.CheckAnnotations(at.Child("annotations"), set)
	v.CheckSpec()
	v.CheckOldProfiles(set)
	if len(spec.GetEphemeralContainers()) > 0 {
		v.Forbidden(v.at.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
}
