package framework

import (
	"maps"
	"math"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// Names of resources.
const (
	CPU              = "cpu"
	Memory           = "memory"
	EphemeralStorage = "ephemeral-storage"
	Pods             = "pods"
)

// What a container without a request counts as in scores, so that such pods spread; requests themselves stay 0.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// Resources is an amount of each resource.
type Resources struct {
	// MilliCPU is in thousandths of a core; Memory and EphemeralStorage are in bytes.
	MilliCPU, Memory, EphemeralStorage int64
	// Scalar holds all other resources in their own units; nil when there are none.
	Scalar map[string]int64
}

// ParseResources reads a resource list. Quantities that do not parse count as 0; the server has validated them.
func ParseResources(list map[string]*metav1.Quantity) Resources {
	var r Resources
	for name, q := range list {
		v, err := value.Quantity(q)
		if err != nil {
			continue
		}
		switch name {
		case CPU:
			r.MilliCPU = v.MilliValue()
		case Memory:
			r.Memory = v.Value()
		case EphemeralStorage:
			r.EphemeralStorage = v.Value()
		default:
			if r.Scalar == nil {
				r.Scalar = map[string]int64{}
			}
			r.Scalar[name] = v.Value()
		}
	}
	return r
}

// Add returns r + o. Sums saturate: an absurd request must not wrap around and fit.
func (r Resources) Add(o Resources) Resources {
	r.MilliCPU = add(r.MilliCPU, o.MilliCPU)
	r.Memory = add(r.Memory, o.Memory)
	r.EphemeralStorage = add(r.EphemeralStorage, o.EphemeralStorage)
	if len(o.Scalar) > 0 {
		r.Scalar = maps.Clone(r.Scalar)
		if r.Scalar == nil {
			r.Scalar = map[string]int64{}
		}
		for k, v := range o.Scalar {
			r.Scalar[k] = add(r.Scalar[k], v)
		}
	}
	return r
}

// IsBasic says whether a resource is one that every pod uses, whether it asks for it or not. The others, extended ones and huge
// pages, are used by those that ask for them only.
func IsBasic(name string) bool { return name == CPU || name == Memory || name == EphemeralStorage }

// Amount returns the amount of a resource, cpu in thousandths.
func (r *Resources) Amount(name string) int64 {
	switch name {
	case CPU:
		return r.MilliCPU
	case Memory:
		return r.Memory
	case EphemeralStorage:
		return r.EphemeralStorage
	default:
		return r.Scalar[name]
	}
}

// Equal says whether both are the same amounts.
func (r Resources) Equal(o Resources) bool {
	return r.MilliCPU == o.MilliCPU && r.Memory == o.Memory && r.EphemeralStorage == o.EphemeralStorage && maps.Equal(r.Scalar, o.Scalar)
}

// Max returns the larger amount of each resource.
func (r Resources) Max(o Resources) Resources {
	r.MilliCPU = max(r.MilliCPU, o.MilliCPU)
	r.Memory = max(r.Memory, o.Memory)
	r.EphemeralStorage = max(r.EphemeralStorage, o.EphemeralStorage)
	if len(o.Scalar) > 0 {
		r.Scalar = maps.Clone(r.Scalar)
		if r.Scalar == nil {
			r.Scalar = map[string]int64{}
		}
		for k, v := range o.Scalar {
			r.Scalar[k] = max(r.Scalar[k], v)
		}
	}
	return r
}

func add(a, b int64) int64 {
	s := a + b
	if a > 0 && b > 0 && s < 0 {
		return math.MaxInt64
	}
	return s
}

// PodRequests returns what a pod needs at once (spec: INIT-3): for each resource the larger of what its app containers and
// sidecars need together and what any init container needs beside the sidecars started before it, plus the overhead. Amounts set for the
// whole pod replace those of its containers.
func PodRequests(spec *corev1.PodSpec) Resources { return podRequests(spec, false) }

// podRequests with counted gives cpu and memory as scores count them.
func podRequests(spec *corev1.PodSpec, counted bool) Resources {
	var running, peak Resources
	for _, c := range spec.GetContainers() {
		running = running.Add(containerRequests(c, counted))
	}
	var sidecars Resources
	for _, c := range spec.GetInitContainers() {
		need := containerRequests(c, counted)
		if c.GetRestartPolicy() == "Always" {
			sidecars = sidecars.Add(need)
			need = sidecars
		} else {
			need = need.Add(sidecars)
		}
		peak = peak.Max(need)
	}
	total := running.Add(sidecars).Max(peak)
	if pod := spec.GetResources().GetRequests(); len(pod) > 0 {
		total = podLevel(total, pod)
	}
	if overhead := spec.GetOverhead(); len(overhead) > 0 {
		total = total.Add(ParseResources(overhead))
	}
	return total
}

// podLevel replaces the amounts that are set for the whole pod.
func podLevel(total Resources, pod map[string]*metav1.Quantity) Resources {
	p := ParseResources(pod)
	if _, ok := pod[CPU]; ok {
		total.MilliCPU = p.MilliCPU
	}
	if _, ok := pod[Memory]; ok {
		total.Memory = p.Memory
	}
	for name, v := range p.Scalar {
		if strings.HasPrefix(name, "hugepages-") {
			total.Scalar = maps.Clone(total.Scalar)
			if total.Scalar == nil {
				total.Scalar = map[string]int64{}
			}
			total.Scalar[name] = v
		}
	}
	return total
}

func containerRequests(c *corev1.Container, counted bool) Resources {
	requests := c.GetResources().GetRequests()
	r := ParseResources(requests)
	if counted {
		if _, ok := requests[CPU]; !ok {
			r.MilliCPU = defaultMilliCPU
		}
		if _, ok := requests[Memory]; !ok {
			r.Memory = defaultMemory
		}
	}
	return r
}
