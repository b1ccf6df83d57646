package pod

import (
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// Validate checks a pod that is to be created, after DefaultNew.
func Validate(p *corev1.Pod) []apierrors.Cause { return validateNew(p, true) }

// ValidateWithSpec is Validate for a pod of which the very spec has passed Validate as part of another.
func ValidateWithSpec(p *corev1.Pod) []apierrors.Cause { return validateNew(p, false) }

func validateNew(p *corev1.Pod, whole bool) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		v := check(f, p, whole)
		spec := f.Root("spec")
		if len(v.spec.GetEphemeralContainers()) > 0 {
			f.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create")
		}
		if v.spec.GetNodeName() != "" && len(v.spec.GetSchedulingGates()) > 0 {
			f.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
		}
		v.CheckOldProfiles(p.GetMetadata().GetAnnotations())
	}
	return f.Causes()
}

// checks is what the checks of one pod share.
type checks struct {
	*podspec.Checker
	spec *corev1.PodSpec
}

func checksOf(f *validation.Faults, p *corev1.Pod) checks {
	spec := p.GetSpec()
	if spec == nil {
		spec = &corev1.PodSpec{}
	}
	return checks{podspec.NewChecker(f, f.Root("spec"), p.GetMetadata().GetName(), spec), spec}
}

// check checks what holds for a pod at any time, with its spec if it is to check the whole.
func check(f *validation.Faults, p *corev1.Pod, whole bool) checks {
	v, m := checksOf(f, p), p.GetMetadata()
	f.ObjectMeta(m, true, validation.NameIsSubdomain)
	f.CoreFinalizers(m.GetFinalizers())
	v.CheckAnnotations(f.Root("metadata").Child("annotations"), m.GetAnnotations())
	if whole {
		v.CheckSpec()
		v.CheckTokens()
	} else {
		v.CheckClaimNames()
	}
	return v
}

// ValidateBinding checks a binding of a pod to a node. Whether the pod may be bound is decided where it is stored.
func ValidateBinding(b *corev1.Binding) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		p := f.Root("target")
		switch t := b.GetTarget(); {
		case t.GetName() == "":
			f.Required(p.Child("name"), "")
		default:
			f.Subdomain(p.Child("name"), t.GetName())
		}
		if k := b.GetTarget().GetKind(); k != "" && k != "Node" {
			f.OneOf(p.Child("kind"), k, "Node", "<empty>")
		}
	}
	return f.Causes()
}
