package pod

import (
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/qos"

	corev1 "monoplane.dev/api/core/v1"
)

// Complete gives the pod of a manifest, which no server has stored, the defaults that it would get here, and checks it
// by the same rules. It is for agents, which run static pods without a server (STATIC-1). What admission adds to a
// pod, such as a service account, is left out. Errors: Invalid, with every bad field.
func Complete(p *corev1.Pod) error {
	Default(p)
	p.Status = &corev1.PodStatus{Phase: phase.Pending, QosClass: qos.Compute(p.Spec)}
	causes := Validate(p)
	refused, _ := validation.NewSupport().Unsupported(p)
	if causes = append(causes, refused...); len(causes) > 0 {
		return apierrors.NewInvalid(corev1.PodKind, p.GetMetadata().GetName(), causes)
	}
	return nil
}
