package pod

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// requestsFromLimits requests what is limited, where nothing is requested.
func requestsFromLimits(c *corev1.Container) {
	r := c.GetResources()
	if len(r.GetLimits()) == 0 {
		return
	}
	if r.Requests == nil {
		r.Requests = make(map[string]*metav1.Quantity, len(r.Limits))
	}
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = defaults.CloneQuantity(q)
		}
	}
}

// podResources completes requests and limits of the pod as a whole from those of its containers. It does
// nothing for pods that have none.
func podResources(s *corev1.PodSpec) {
	r := s.Resources
	if len(r.GetLimits()) == 0 && len(r.GetRequests()) == 0 {
		return
	}
	limits := r.Limits
	for _, a := range resources.ContainerLimits(s) {
		if _, requested := r.Requests[a.Name]; resources.IsHugePages(a.Name) && !requested {
			limits = put(limits, a.Name, a.Quantity.String())
		}
	}
	r.Limits = limits
	if len(r.Limits) == 0 {
		return
	}
	for _, a := range resources.ContainerRequests(s) {
		if resources.ForPods(a.Name) && resources.CanOvercommit(a.Name) {
			r.Requests = put(r.Requests, a.Name, a.Quantity.String())
		}
	}
	for name, q := range r.Limits {
		if resources.ForPods(name) {
			r.Requests = put(r.Requests, name, q.GetString_())
		}
	}
}

// put adds an amount unless there is one.
func put(list map[string]*metav1.Quantity, name, amount string) map[string]*metav1.Quantity {
	if list == nil {
		list = map[string]*metav1.Quantity{}
	}
	if _, ok := list[name]; !ok {
		list[name] = &metav1.Quantity{String_: amount}
	}
	return list
}
