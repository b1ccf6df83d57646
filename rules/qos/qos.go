// Package qos tells the quality-of-service class of a pod (QOS-1), which says how much it may count on the cpu and
// memory that it asks for. The server writes the class into the status of a new pod, refuses what would change it,
// and agents write it into the status of the pods that they make themselves.
//
// It guarantees the classes of Kubernetes: test/oracle compares them over random pods. A quantity that is zero,
// negative or cannot be read counts as absent. It knows nothing of what follows from a class, such as the order of
// evictions.
package qos

import (
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// The classes.
const (
	// Guaranteed pods have limits of cpu and memory for every container, and request just that.
	Guaranteed = "Guaranteed"
	// Burstable pods are all others.
	Burstable = "Burstable"
	// BestEffort pods ask for neither cpu nor memory.
	BestEffort = "BestEffort"
)

// Of returns the class that a pod was given, which never changes, or the one that it will be given.
func Of(p *corev1.Pod) string {
	if class := p.GetStatus().GetQosClass(); class != "" {
		return class
	}
	return Compute(p.GetSpec())
}

// Compute works the class out. Resources of the pod as a whole decide where there are any, even empty ones; else all
// containers but the ephemeral ones count.
func Compute(spec *corev1.PodSpec) string {
	var t total
	t.limited = true
	if whole := spec.GetResources(); whole != nil {
		t.requests.add(whole.GetRequests())
		if len(whole.GetLimits()) > 0 {
			t.limit(whole.GetLimits())
		}
	} else {
		for _, c := range spec.GetContainers() {
			t.container(c)
		}
		for _, c := range spec.GetInitContainers() {
			t.container(c)
		}
	}
	switch {
	case !t.requests.any && !t.limits.any:
		return BestEffort
	case t.limited && t.requests.equal(&t.limits):
		return Guaranteed
	default:
		return Burstable
	}
}

// total is what was counted so far.
type total struct {
	requests, limits sum
	// limited says that everything that was counted has limits of both cpu and memory.
	limited bool
}

func (t *total) container(c *corev1.Container) {
	t.requests.add(c.GetResources().GetRequests())
	t.limit(c.GetResources().GetLimits())
}

func (t *total) limit(limits map[string]*metav1.Quantity) {
	t.limited = t.limits.add(limits) == len(names) && t.limited
}

// names are the resources that count.
var names = [...]string{"cpu", "memory"}

// sum adds up the amounts of them.
type sum struct {
	amounts [len(names)]resource.Quantity
	any     bool
}

// add adds the amounts above zero, and returns how many there were.
func (s *sum) add(list map[string]*metav1.Quantity) (n int) {
	if len(list) == 0 {
		return 0
	}
	for i, name := range names {
		q, err := value.Quantity(list[name])
		if err != nil || q.Sign() <= 0 {
			continue
		}
		s.amounts[i].Add(q)
		n++
	}
	s.any = s.any || n > 0
	return n
}

func (s *sum) equal(o *sum) bool {
	for i := range s.amounts {
		if s.amounts[i].Cmp(o.amounts[i]) != 0 {
			return false
		}
	}
	return true
}
