package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/codec/json"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Scope says where a resource is asked for.
type Scope int

const (
	// OfContainer is what one container asks for.
	OfContainer Scope = iota
	// OfPod is what a pod as a whole asks for.
	OfPod
	// OfNamespace is what all objects of a namespace may have together, or a claim.
	OfNamespace
	// OfQuota is what a quota limits.
	OfQuota
)

// standardResources are the names without a prefix that mean something.
func standardResource(name string) bool {
	switch strings.TrimPrefix(name, "requests.") {
	case "cpu", "memory", "ephemeral-storage", "storage":
		return true
	}
	switch name {
	case "limits.cpu", "limits.memory", "limits.ephemeral-storage":
		return true
	}
	return countedResource(name) || resources.IsHugePages(strings.TrimPrefix(name, "requests."))
}

// countedResource are those that quotas count.
func countedResource(name string) bool {
	switch name {
	case "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
		"persistentvolumeclaims", "services.nodeports", "services.loadbalancers":
		return true
	}
	return false
}

// extendedResource says whether name belongs to a vendor, such as "example.com/gpu".
func extendedResource(name string) bool {
	return !resources.IsNative(name) && !strings.HasPrefix(name, "requests.") &&
		len(WrongQualifiedName("requests."+name)) == 0
}

// ResourceName checks the name of a resource that is asked for.
func (f *Faults) ResourceName(p *Path, name string, s Scope) {
	if name == resources.CPU || name == resources.Memory {
		return // Nearly always one of these.
	}
	msgs := WrongQualifiedName(name)
	f.Invalid(p, name, msgs...)
	bare := !strings.Contains(name, "/")
	if len(msgs) == 0 && bare && !standardResource(name) {
		f.Invalid(p, name, "must be a standard resource type or fully qualified")
		if s == OfPod {
			return
		}
	}
	switch {
	case s == OfNamespace:
	case s == OfQuota:
		if len(msgs) == 0 && bare && !QuotaResource(name) {
			f.Invalid(p, name, "must be a standard resource for quota")
		}
	case s == OfPod:
		if len(msgs) == 0 && !resources.ForPods(name) {
			f.OneOf(p, name, resources.CPU, resources.HugePagesPrefix, resources.Memory)
		}
	case bare:
		switch {
		case name == resources.CPU, name == resources.Memory, name == resources.EphemeralStorage,
			resources.IsHugePages(name):
		default:
			f.Invalid(p, name, "must be a standard resource for containers")
		}
	case !resources.IsNative(name) && !extendedResource(name):
		f.Invalid(p, name, "doesn't follow extended resource name standard")
	}
}

// QuotaResource says whether quotas limit a resource that is named without a prefix.
func QuotaResource(name string) bool { return standardResource(name) && name != resources.Storage }

// Readable returns a quantity; false when it cannot be read, which is a fault.
func (f *Faults) Readable(p *Path, text *metav1.Quantity) (resource.Quantity, bool) {
	q, err := value.Quantity(text)
	if err != nil {
		f.Invalid(p, text.GetString_(), err.Error())
		return q, false
	}
	return q, true
}

// Amount checks a quantity of a resource and returns it; false when it cannot be read.
func (f *Faults) Amount(p *Path, name string, text *metav1.Quantity) (resource.Quantity, bool) {
	q, ok := f.Readable(p, text)
	if !ok {
		return q, false
	}
	if q.Sign() < 0 {
		f.Invalid(p, q.String(), "must be greater than or equal to 0")
	}
	if (countedResource(name) || extendedResource(name)) && q.MilliValue()%1000 != 0 {
		f.Invalid(p, q.String(), "must be an integer")
	}
	return q, true
}

// Requirements checks requests and limits (CTR-10): requests are at most limits, and equal to them where
// the resource cannot be overcommitted.
func (f *Faults) Requirements(p *Path, r *corev1.ResourceRequirements, s Scope) {
	computes, huge := false, false
	note := func(name string) {
		computes = computes || name == resources.CPU || name == resources.Memory
		huge = huge || resources.IsHugePages(name)
	}
	var limits map[string]resource.Quantity
	var room Few
	for _, name := range Sorted(&room, r.GetLimits()) {
		at := p.Child("limits").Key(name)
		note(name)
		f.ResourceName(at, name, s)
		if q, ok := f.Amount(at, name, r.GetLimits()[name]); ok {
			if limits == nil {
				limits = make(map[string]resource.Quantity, len(r.GetLimits()))
			}
			limits[name] = q
			f.wholePages(at, name, q)
		}
	}
	for _, name := range Sorted(&room, r.GetRequests()) {
		at := p.Child("requests").Key(name)
		note(name)
		f.ResourceName(at, name, s)
		q, ok := f.Amount(at, name, r.GetRequests()[name])
		limit, limited := limits[name]
		if _, given := r.GetLimits()[name]; !given && !resources.CanOvercommit(name) {
			f.Required(p.Child("limits"), "Limit must be set for non overcommitable resources")
		}
		if !ok {
			continue
		}
		f.wholePages(at, name, q)
		if !limited {
			continue
		}
		switch c := q.Cmp(limit); {
		case c != 0 && !resources.CanOvercommit(name):
			f.Invalid(p.Child("requests"), q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case c > 0:
			f.Invalid(p.Child("requests"), q.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
	}
	if huge && !computes {
		f.Forbidden(p, "HugePages require cpu or memory")
	}
}

// wholePages checks that an amount of huge pages is a multiple of their size.
func (f *Faults) wholePages(p *Path, name string, q resource.Quantity) {
	text, ok := strings.CutPrefix(name, resources.HugePagesPrefix)
	if !ok {
		return
	}
	size, err := json.ParseQuantity(text)
	if text == "" || err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || size.Value() == 0 ||
		q.Value()%size.Value() != 0 {
		f.Invalid(p, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
	}
}
