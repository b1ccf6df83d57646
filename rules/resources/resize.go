package resources

import (
	"maps"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/initcontainer"
)

// What a pod's status says of a change of its resources.
const (
	// ResizePending is the condition of a pod whose resources are not those that its spec asks for yet. Its reason is
	// Deferred, or Infeasible.
	ResizePending = "PodResizePending"
	// ResizeInProgress is the condition of a pod whose containers are being given what was granted. Its reason is empty,
	// or ResizeError.
	ResizeInProgress = "PodResizeInProgress"

	Deferred    = "Deferred"
	Infeasible  = "Infeasible"
	ResizeError = "Error"
)

// Held returns the spec of a pod with the requests that are to be counted on its node: of a pod that is being resized
// the larger ones of those that it asks for, those that the node has set aside and those in force; but not those that
// it asks for if the node says that it will never grant them. Without a resize that is the spec itself.
func Held(p *corev1.Pod) *corev1.PodSpec {
	spec, status := p.GetSpec(), p.GetStatus()
	h := held{infeasible: infeasible(status)}
	containers := h.containers(spec.GetContainers(), status, func(*corev1.Container) bool { return true })
	inits := h.containers(spec.GetInitContainers(), status, initcontainer.IsSidecar)
	whole := h.whole(spec.GetResources(), status)
	if containers == nil && inits == nil && whole == nil {
		return spec
	}
	out := spec.Shallow()
	if containers != nil {
		out.Containers = containers
	}
	if inits != nil {
		out.InitContainers = inits
	}
	if whole != nil {
		out.Resources = whole
	}
	return out
}

type held struct{ infeasible bool }

func infeasible(s *corev1.PodStatus) bool {
	for _, c := range s.GetConditions() {
		if c.GetType() == ResizePending {
			return c.GetReason() == Infeasible
		}
	}
	return false
}

// containers returns the containers with the requests that count, nil when those are what they ask for.
func (h held) containers(
	list []*corev1.Container, s *corev1.PodStatus, counts func(*corev1.Container) bool,
) []*corev1.Container {
	var out []*corev1.Container
	for i, c := range list {
		has := statusOf(s, c.GetName(), i)
		if has.GetResources() == nil || !counts(c) {
			continue
		}
		asks := c.GetResources().GetRequests()
		requests := h.effective(asks, has.GetResources().GetRequests(), has.GetAllocatedResources())
		if requests == nil {
			continue
		}
		if out == nil {
			out = slices.Clone(list)
		}
		out[i] = c.Shallow()
		out[i].Resources = with(c.GetResources(), requests)
	}
	return out
}

// whole returns what the pod asks for as a whole with the requests that count, nil when those are what it asks for.
// Only of what it asks for does anything count.
func (h held) whole(asks *corev1.ResourceRequirements, s *corev1.PodStatus) *corev1.ResourceRequirements {
	if len(asks.GetRequests()) == 0 || s.GetResources() == nil {
		return nil
	}
	requests := h.effective(asks.GetRequests(), s.GetResources().GetRequests(), s.GetAllocatedResources())
	if requests == nil {
		return nil
	}
	maps.DeleteFunc(requests, func(name string, _ *metav1.Quantity) bool { return asks.GetRequests()[name] == nil })
	for name := range asks.GetRequests() {
		if requests[name] == nil {
			requests[name] = &metav1.Quantity{String_: "0"}
		}
	}
	return with(asks, requests)
}

// effective returns the requests that count, nil when those are what is asked for.
func (h held) effective(asks, actual, allocated map[string]*metav1.Quantity) map[string]*metav1.Quantity {
	if within(actual, asks) && within(allocated, asks) &&
		(!h.infeasible || within(asks, actual) || within(asks, allocated)) {
		return nil
	}
	out := make(map[string]*metav1.Quantity, len(asks))
	if !h.infeasible {
		maps.Copy(out, asks)
	}
	for _, m := range [...]map[string]*metav1.Quantity{actual, allocated} {
		for name, q := range m {
			if out[name] == nil || !atMost(q, out[name]) {
				out[name] = q
			}
		}
	}
	return out
}

// within says whether every amount of m is in most and not larger there.
func within(m, most map[string]*metav1.Quantity) bool {
	for name, q := range m {
		if limit := most[name]; limit == nil || !atMost(q, limit) {
			return false
		}
	}
	return true
}

// atMost says whether a is not more than b. One that cannot be read is nothing.
func atMost(a, b *metav1.Quantity) bool {
	if a.GetString_() == b.GetString_() {
		return true
	}
	x, _ := value.Quantity(a)
	y, _ := value.Quantity(b)
	return x.Cmp(y) <= 0
}

func with(r *corev1.ResourceRequirements, requests map[string]*metav1.Quantity) *corev1.ResourceRequirements {
	out := r.Shallow()
	if out == nil {
		out = &corev1.ResourceRequirements{}
	}
	out.Requests = requests
	return out
}

// statusOf returns the status of the named container, which is the i-th of its list; nil when there is none.
func statusOf(s *corev1.PodStatus, name string, i int) *corev1.ContainerStatus {
	for _, list := range [...][]*corev1.ContainerStatus{s.GetContainerStatuses(), s.GetInitContainerStatuses()} {
		if i < len(list) && list[i].GetName() == name {
			return list[i] // nearly always
		}
		for _, c := range list {
			if c.GetName() == name {
				return c
			}
		}
	}
	return nil
}

// Limits returns what a pod may use together with its overhead, of each resource that is limited: of a pod that is
// being resized the larger of what it asks for and what is in force; but only the latter if the node says that it will
// never grant what it asks for.
func Limits(p *corev1.Pod) List {
	spec, status := p.GetSpec(), p.GetStatus()
	never := infeasible(status)
	held := spec.Shallow()
	if held == nil {
		return nil
	}
	inForce := func(list []*corev1.Container, counts func(*corev1.Container) bool) []*corev1.Container {
		out := list
		for i, c := range list {
			has := statusOf(status, c.GetName(), i)
			if has.GetResources() == nil || !counts(c) {
				continue
			}
			asks, actual := c.GetResources().GetLimits(), has.GetResources().GetLimits()
			if within(actual, asks) && (!never || within(asks, actual)) {
				continue
			}
			limits := maps.Clone(actual)
			for name, q := range asks {
				if !never && (limits[name] == nil || !atMost(q, limits[name])) {
					limits[name] = q
				}
			}
			if &out[0] == &list[0] {
				out = slices.Clone(list)
			}
			out[i] = c.Shallow()
			if out[i].Resources = c.GetResources().Shallow(); out[i].Resources == nil {
				out[i].Resources = &corev1.ResourceRequirements{}
			}
			out[i].Resources.Limits = limits
		}
		return out
	}
	held.Containers = inForce(spec.GetContainers(), func(*corev1.Container) bool { return true })
	held.InitContainers = inForce(spec.GetInitContainers(), initcontainer.IsSidecar)
	total := LimitsForItself(held)
	for name, text := range spec.GetOverhead() {
		if q, ok := total.Get(name); ok && !q.IsZero() {
			total = total.addAll(map[string]*metav1.Quantity{name: text})
		}
	}
	return total
}
