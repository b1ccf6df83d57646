package defaults

import (
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
	requests, limits := resources.List{}, resources.List{}
	limited := true // Every container so far has a limit for both.
	count := func(r *corev1.ResourceRequirements) {
		addCompute(requests, r.GetRequests())
		limited = addCompute(limits, r.GetLimits()) == len(compute) && limited
	}
	if whole := p.GetSpec().GetResources(); whole != nil {
		addCompute(requests, whole.GetRequests())
		if len(whole.GetLimits()) > 0 {
			limited = addCompute(limits, whole.GetLimits()) == len(compute)
		}
	} else {
		for _, c := range p.GetSpec().GetContainers() {
			count(c.GetResources())
		}
		for _, c := range p.GetSpec().GetInitContainers() {
			count(c.GetResources())
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return BestEffort
	}
	if !limited || len(requests) != len(limits) {
		return Burstable
	}
	for name, r := range requests {
		if l, ok := limits[name]; !ok || l.Cmp(r) != 0 {
			return Burstable
		}
	}
	return Guaranteed
}

var compute = [...]string{resources.CPU, resources.Memory}

// addCompute adds the amounts of cpu and memory above zero, and returns how many of the two there were.
func addCompute(sum resources.List, list map[string]*metav1.Quantity) (n int) {
	for _, name := range compute {
		q, err := resources.Parse(list[name])
		if err != nil || q.Sign() <= 0 {
			continue
		}
		have := sum[name].DeepCopy()
		have.Add(q)
		sum[name] = have
		n++
	}
	return n
}
