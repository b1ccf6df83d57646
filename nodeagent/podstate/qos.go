package podstate

import (
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// QOSClass returns the quality-of-service class of a pod. Zero quantities count as unset; pod-level resources
// decide where they are set. spec: QOS-1
func QOSClass(p *corev1.Pod) string {
	spec := p.GetSpec()
	if r := spec.GetResources(); len(r.GetLimits())+len(r.GetRequests()) > 0 {
		return class([]*corev1.ResourceRequirements{r})
	}
	var all []*corev1.ResourceRequirements
	for _, c := range spec.GetInitContainers() {
		all = append(all, c.GetResources())
	}
	for _, c := range spec.GetContainers() {
		all = append(all, c.GetResources())
	}
	return class(all)
}

func class(all []*corev1.ResourceRequirements) string {
	any, guaranteed := false, true
	for _, r := range all {
		for _, name := range []string{"cpu", "memory"} {
			limit, hasLimit := quantity(r.GetLimits(), name)
			request, hasRequest := quantity(r.GetRequests(), name)
			any = any || hasLimit || hasRequest
			if !hasLimit || hasRequest && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return "BestEffort"
	case guaranteed:
		return "Guaranteed"
	default:
		return "Burstable"
	}
}

// quantity returns ok false for a quantity that is missing, zero or malformed.
func quantity(m map[string]*metav1.Quantity, name string) (q resource.Quantity, ok bool) {
	q, err := value.Quantity(m[name])
	return q, err == nil && !q.IsZero()
}
