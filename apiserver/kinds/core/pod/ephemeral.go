package pod

import (
	"fmt"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// applyEphemeral: only the containers for debugging are taken over (INIT-6).
func applyEphemeral(asked, live *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	Default(next)
	next.Status = live.Status
	spec := live.GetSpec().Shallow()
	spec.EphemeralContainers = next.Spec.GetEphemeralContainers()
	next.Spec = spec
	return next
}

// ValidateEphemeral checks that containers for debugging may be added: the new pod is valid, and has all that the old
// one had, as it was (INIT-6). The caller has put back everything that the subresource does not change.
func ValidateEphemeral(new, old *corev1.Pod) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		if _, mirror := old.GetMetadata().GetAnnotations()[podspec.AnnotationMirror]; mirror {
			f.Forbidden(nil, "static pods do not support ephemeral containers")
			continue
		}
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		v := check(f, new, true)
		v.annotationChanges(f.Root("metadata").Child("annotations"), new, old)
		v.onlyMoreEphemeral(f.Root("spec").Child("ephemeralContainers"), old.GetSpec().GetEphemeralContainers())
	}
	return f.Causes()
}

// onlyMoreEphemeral compares by name: a patch may have changed the order.
func (v checks) onlyMoreEphemeral(p *validation.Path, was []*corev1.EphemeralContainer) {
	now := make(map[string]*corev1.EphemeralContainer, len(v.spec.GetEphemeralContainers()))
	for _, c := range v.spec.GetEphemeralContainers() {
		now[c.GetEphemeralContainerCommon().GetName()] = c
	}
	for _, c := range was {
		name := c.GetEphemeralContainerCommon().GetName()
		if kept, ok := now[name]; !ok {
			v.Forbidden(p, fmt.Sprintf("existing ephemeral containers %q may not be removed", name))
		} else if !validation.Equal(kept, c) {
			v.Forbidden(p, fmt.Sprintf("existing ephemeral containers %q may not be changed", name))
		}
	}
}
