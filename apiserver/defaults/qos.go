package defaults

import (
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/resources"
)

// The quality-of-service classes of pods.
const (
	Guaranteed = "Guaranteed"
	Burstable  = "Burstable"
	BestEffort = "BestEffort"
)

// QOSClass returns the quality-of-service class of a pod, from the cpu and memory that it asks for (QOS-1).
func QOSClass(p *corev1.Pod) string {
	var requests, limits sums
	limited := true // Every container so far has a limit for both.
	count := func(r *corev1.ResourceRequirements) {
		requests.add(r.GetRequests())
		limited = limits.add(r.GetLimits()) == len(compute) && limited
	}
	if whole := p.GetSpec().GetResources(); whole != nil {
		requests.add(whole.GetRequests())
		if len(whole.GetLimits()) > 0 {
			limited = limits.add(whole.GetLimits()) == len(compute)
		}
	} else {
		for _, c := range p.GetSpec().GetContainers() {
			count(c.GetResources())
		}
		for _, c := range p.GetSpec().GetInitContainers() {
			count(c.GetResources())
		}
	}
	switch {
	case requests == (sums{}) && limits == (sums{}):
		return BestEffort
	case !limited:
		return Burstable
	}
	for i := range compute {
		if requests[i].Cmp(limits[i]) != 0 {
			return Burstable
		}
	}
	return Guaranteed
}

var compute = [...]string{resources.CPU, resources.Memory}

// sums are the amounts of cpu and memory; only those above zero count, so that zero is none.
type sums [len(compute)]resource.Quantity

// add adds the amounts of cpu and memory above zero, and returns how many of the two there were.
func (s *sums) add(list map[string]*metav1.Quantity) (n int) {
	if len(list) == 0 {
		return 0
	}
	for i, name := range compute {
		q, err := resources.Parse(list[name])
		if err != nil || q.Sign() <= 0 {
			continue
		}
		s[i].Add(q)
		n++
	}
	return n
}
