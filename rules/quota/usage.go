package quota

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// Usage is amounts by resource. Its quantities are values: nobody changes one in place.
type Usage map[string]resource.Quantity

// UsageOf reads amounts, without those that cannot be read.
func UsageOf(amounts map[string]*metav1.Quantity) Usage {
	u := make(Usage, len(amounts))
	for name, text := range amounts {
		if q, err := value.Quantity(text); err == nil {
			u[name] = q
		}
	}
	return u
}

// Amounts returns the usage as objects have it.
func (u Usage) Amounts() map[string]*metav1.Quantity {
	out := make(map[string]*metav1.Quantity, len(u))
	for name, q := range u {
		out[name] = value.NewQuantity(q)
	}
	return out
}

// Add adds more to u.
func (u Usage) Add(more Usage) {
	for name, q := range more {
		sum := u[name].DeepCopy() // large ones are behind a pointer, which another usage may share
		if _, ok := u[name]; !ok {
			sum.Format = q.Format
		}
		sum.Add(q)
		u[name] = sum
	}
}

// Sub takes less away from u.
func (u Usage) Sub(less Usage) {
	for name, q := range less {
		rest := u[name].DeepCopy()
		rest.Sub(q)
		u[name] = rest
	}
}

// Beyond returns by how much u is more than before, without what is not.
func (u Usage) Beyond(before Usage) Usage {
	out := make(Usage, len(u))
	for name, q := range u {
		more := q.DeepCopy()
		if was, ok := before[name]; ok {
			more.Sub(was)
		}
		if more.Sign() > 0 {
			out[name] = more
		}
	}
	return out
}

// Only returns the amounts of the resources that limits has.
func (u Usage) Only(limits Usage) Usage {
	out := make(Usage, len(u))
	for name, q := range u {
		if _, ok := limits[name]; ok {
			out[name] = q
		}
	}
	return out
}

// Above returns the names of the resources, in order, of which u is more than limits allows.
func (u Usage) Above(limits Usage) []string {
	var names []string
	for name, q := range u {
		if most, ok := limits[name]; ok && q.Cmp(most) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Equal says whether both have the same amounts of the same resources.
func (u Usage) Equal(other Usage) bool {
	return maps.EqualFunc(u, other, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// Named renders the amounts of some resources as messages have them, such as "cpu=1,pods=2".
func (u Usage) Named(names []string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		q := u[name]
		parts[i] = name + "=" + q.String()
	}
	return strings.Join(parts, ",")
}

// Names returns the names of the resources, in order.
func (u Usage) Names() []string { return slices.Sorted(maps.Keys(u)) }

// count is the usage of an object that is counted under some names.
func count(n int64, names ...string) Usage {
	u := make(Usage, len(names))
	for _, name := range names {
		u[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return u
}

// None returns nothing of each resource that is limited.
func None(spec *corev1.ResourceQuotaSpec) Usage {
	return count(0, slices.Collect(maps.Keys(spec.GetHard()))...)
}
