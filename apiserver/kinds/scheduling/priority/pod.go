package priority

import (
	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
)

// preempts is what a pod without a class may do.
const preempts = "PreemptLowerPriority"

// Unknown refuses a pod that names a class that does not exist.
func Unknown(p *corev1.Pod) error {
	return refused(p, "no PriorityClass with name %v was found", p.GetSpec().GetPriorityClassName())
}

// Set gives a new pod what its class says; a nil class is priority 0. It refuses a pod that states something else.
func Set(p *corev1.Pod, class *schedulingv1.PriorityClass) error {
	s, value, policy := p.Spec, class.GetValue(), preempts
	if class != nil {
		policy = class.GetPreemptionPolicy()
	}
	if s.Priority != nil && *s.Priority != value {
		return refused(p, "the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *s.Priority, value)
	}
	if s.PreemptionPolicy != nil && *s.PreemptionPolicy != policy {
		return refused(p, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *s.PreemptionPolicy, policy)
	}
	s.PriorityClassName = class.GetMetadata().GetName()
	s.Priority, s.PreemptionPolicy = &value, &policy
	return nil
}

// Keep leaves a pod its priority when an update does not state it, as clients do that write the pod they once made.
func Keep(next, live *corev1.Pod) {
	was := live.GetSpec()
	if was == nil {
		return
	}
	if next.Spec.Priority == nil {
		next.Spec.Priority = was.Priority
	}
	if next.Spec.PreemptionPolicy == nil {
		next.Spec.PreemptionPolicy = was.PreemptionPolicy
	}
}

func refused(p *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(corev1.PodKind, p.GetMetadata().GetName(), format, args...)
}
