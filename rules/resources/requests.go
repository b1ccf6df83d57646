package resources

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/initcontainer"
)

// Requests returns what a pod needs of its node (INIT-3): what its containers need together, but for resources that
// are requested for the pod as a whole, and its overhead.
func Requests(spec *corev1.PodSpec) List { return AppendRequests(nil, spec, nil) }

// AppendRequests is Requests in room, which it overwrites. A container that says nothing of a resource in absent is
// taken to request that much of it.
func AppendRequests(room List, spec *corev1.PodSpec, absent List) List {
	total := together(room[:0], spec, requestsOf, absent)
	return total.whole(spec.GetResources().GetRequests()).addAll(spec.GetOverhead())
}

// RequestsForItself is Requests without the overhead.
func RequestsForItself(spec *corev1.PodSpec) List {
	return ContainerRequests(spec).whole(spec.GetResources().GetRequests())
}

// LimitsForItself returns what the containers of a pod may use together, but for resources that are limited for the
// pod as a whole. A container without a limit does not count: see whether all have one before these are enforced
// (INIT-8).
func LimitsForItself(spec *corev1.PodSpec) List {
	return ContainerLimits(spec).whole(spec.GetResources().GetLimits())
}

// whole puts what is said for the pod as a whole in place of what was added up.
func (l List) whole(says map[string]*metav1.Quantity) List {
	for name, text := range says {
		if ForPods(name) {
			l = l.put(name, text)
		}
	}
	return l
}

// ForWhole says whether resources are requested for the pod as a whole.
func ForWhole(spec *corev1.PodSpec) bool {
	for name := range spec.GetResources().GetRequests() {
		if ForPods(name) {
			return true
		}
	}
	return false
}

// ContainerRequests returns what the containers of a pod request together, without what is requested for the pod as a
// whole.
func ContainerRequests(spec *corev1.PodSpec) List { return together(nil, spec, requestsOf, nil) }

// ContainerLimits is ContainerRequests for limits.
func ContainerLimits(spec *corev1.PodSpec) List { return together(nil, spec, limitsOf, nil) }

func requestsOf(c *corev1.Container) map[string]*metav1.Quantity {
	return c.GetResources().GetRequests()
}

func limitsOf(c *corev1.Container) map[string]*metav1.Quantity { return c.GetResources().GetLimits() }

// together adds up what the containers have at most at any time: app containers and sidecars run together; each plain
// init container runs with the sidecars before it.
func together(
	total List, spec *corev1.PodSpec, of func(*corev1.Container) map[string]*metav1.Quantity, absent List,
) List {
	for _, c := range spec.GetContainers() {
		total = total.container(of(c), absent)
	}
	var sidecars, peak List
	for _, c := range spec.GetInitContainers() {
		if initcontainer.IsSidecar(c) {
			// What the sidecars have by themselves is no peak: the app containers run with all of them.
			total, sidecars = total.container(of(c), absent), sidecars.container(of(c), absent)
			continue
		}
		now := append(make(List, 0, len(sidecars)+2), sidecars...)
		peak = peak.raise(now.container(of(c), absent))
	}
	return total.raise(peak)
}

// container adds what a container says, and what it is taken to say of absent.
func (l List) container(says map[string]*metav1.Quantity, absent List) List {
	l = l.addAll(says)
	for _, a := range absent {
		if _, said := says[a.Name]; !said {
			l = l.add(a)
		}
	}
	return l
}
