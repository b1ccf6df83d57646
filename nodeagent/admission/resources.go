package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	rules "monoplane.dev/rules/resources"
)

// shortage is a resource of which the node has not enough. Amounts are in thousandths of a cpu, and else in units.
type shortage struct {
	resource             string
	asked, used, present int64
}

// missing returns how much must become free.
func (s shortage) missing() int64 { return s.asked - (s.present - s.used) }

func (s shortage) refusal() *Refusal {
	return &Refusal{"OutOf" + s.resource, fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.resource, s.asked, s.used,
		s.present)}
}

const (
	resourcePods = "pods"
	resourceCPU  = "cpu"
)

// amount returns a quantity as shortages have it.
func amount(name string, q resource.Quantity) int64 {
	if name == resourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// requestOf returns how much of a resource a pod asks for.
func requestOf(l rules.List, name string) int64 {
	if name == resourcePods {
		return 1
	}
	q, _ := l.Get(name)
	return amount(name, q)
}

// lacking returns what the node has not enough of for the pod.
func lacking(r *Request) []shortage {
	present := rules.ListOf(r.Node.GetStatus().GetAllocatable())
	var out []shortage
	if most, ok := present.Get(resourcePods); ok && int64(len(r.Others))+1 > most.Value() {
		out = append(out, shortage{resourcePods, 1, int64(len(r.Others)), most.Value()})
	}
	held := make([]rules.List, len(r.Others))
	for i, o := range r.Others {
		held[i] = rules.Requests(o.Pod.GetSpec())
	}
	for _, asked := range rules.Requests(r.Pod.GetSpec()) {
		s := shortage{resource: asked.Name, asked: amount(asked.Name, asked.Quantity)}
		if s.asked == 0 {
			continue
		}
		for _, l := range held {
			s.used += requestOf(l, s.resource)
		}
		if have, ok := present.Get(s.resource); ok {
			s.present = amount(s.resource, have)
		}
		if s.missing() > 0 {
			out = append(out, s)
		}
	}
	return out
}

func increases(now, was *corev1.PodSpec) bool {
	a, b := rules.Requests(now), rules.Requests(was)
	return requestOf(a, resourceCPU) > requestOf(b, resourceCPU) ||
		requestOf(a, rules.Memory) > requestOf(b, rules.Memory)
}

// preemptable reports whether a pod may have to go for another.
func preemptable(r *Request, o Holder) bool {
	if Critical(r.Pod, r.Static) && !Critical(o.Pod, o.Static) {
		return true
	}
	a, b := r.Pod.GetSpec(), o.Pod.GetSpec()
	return a.GetPriority() > b.GetPriority() && a.Priority != nil && b.Priority != nil
}
