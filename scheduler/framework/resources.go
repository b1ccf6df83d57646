package framework

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"
)

// Names of resources.
const (
	CPU              = resources.CPU
	Memory           = resources.Memory
	EphemeralStorage = resources.EphemeralStorage
	Pods             = "pods"
)

// assumed is what a container without a request counts as in scores, so that such pods spread; requests themselves
// stay 0.
func assumed() resources.List {
	return resources.List{
		{Name: CPU, Quantity: *resource.NewMilliQuantity(100, resource.DecimalSI)},
		{Name: Memory, Quantity: *resource.NewQuantity(200<<20, resource.BinarySI)},
	}
}

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
		if v, err := value.Quantity(q); err == nil {
			r.set(name, v)
		}
	}
	return r
}

// set sets the amount of a resource that r has none of.
func (r *Resources) set(name string, q resource.Quantity) {
	switch name {
	case CPU:
		r.MilliCPU = inUnits(q, resource.Milli, 1000)
	case Memory:
		r.Memory = inUnits(q, 0, 1)
	case EphemeralStorage:
		r.EphemeralStorage = inUnits(q, 0, 1)
	default:
		if r.Scalar == nil {
			r.Scalar = map[string]int64{}
		}
		r.Scalar[name] = inUnits(q, 0, 1)
	}
}

// inUnits returns a quantity in units of which one is made of so many, rounded up. It saturates: an absurd request
// must not become 0 and fit.
func inUnits(q resource.Quantity, unit resource.Scale, perOne float64) int64 {
	if q.AsApproximateFloat64()*perOne >= math.MaxInt64 {
		return math.MaxInt64
	}
	return q.ScaledValue(unit)
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

// IsBasic says whether a resource is one that every pod uses, whether it asks for it or not. The others, extended ones
// and huge pages, are used by those that ask for them only.
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
	return r.MilliCPU == o.MilliCPU && r.Memory == o.Memory && r.EphemeralStorage == o.EphemeralStorage &&
		maps.Equal(r.Scalar, o.Scalar)
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

// PodRequests returns what a pod needs of its node (see resources.Requests).
func PodRequests(spec *corev1.PodSpec) Resources {
	var room [usualResources]resources.Amount
	return sumOf(resources.AppendRequests(room[:], spec, nil))
}

// usualResources is how many different resources a pod asks for at most, as a rule.
const usualResources = 4

func sumOf(list resources.List) Resources {
	var r Resources
	for i := range list {
		r.set(list[i].Name, list[i].Quantity)
	}
	return r
}

// demand returns what a pod needs, and the same as scores count it. Resources that are requested for the pod as a
// whole stand for what its containers do not say, if that leaves nothing open.
func demand(spec *corev1.PodSpec) (requests, counted Resources) {
	var room [usualResources]resources.Amount
	list := resources.AppendRequests(room[:], spec, nil)
	requests = sumOf(list)
	if !silent(spec) {
		return requests, requests
	}
	absent := assumed()
	if resources.ForWhole(spec) {
		absent = slices.DeleteFunc(absent, func(a resources.Amount) bool {
			_, said := list.Get(a.Name)
			return said
		})
	}
	return requests, sumOf(resources.AppendRequests(list, spec, absent))
}

// silent says whether a container requests no cpu or no memory.
func silent(spec *corev1.PodSpec) bool {
	quiet := func(c *corev1.Container) bool {
		requests := c.GetResources().GetRequests()
		_, cpu := requests[CPU]
		_, memory := requests[Memory]
		return !cpu || !memory
	}
	return slices.ContainsFunc(spec.GetContainers(), quiet) || slices.ContainsFunc(spec.GetInitContainers(), quiet)
}
