package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/json"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"
)

// scope says where a resource is asked for.
type scope int

const (
	containerResource scope = iota
	podResource
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
		len(wrongQualifiedName("requests."+name)) == 0
}

func (f *faults) resourceName(p *fieldPath, name string, s scope) {
	if name == resources.CPU || name == resources.Memory {
		return // Nearly always one of these.
	}
	msgs := wrongQualifiedName(name)
	f.invalid(p, name, msgs...)
	bare := !strings.Contains(name, "/")
	if len(msgs) == 0 && bare && !standardResource(name) {
		f.invalid(p, name, "must be a standard resource type or fully qualified")
		if s == podResource {
			return
		}
	}
	switch {
	case s == podResource:
		if len(msgs) == 0 && !resources.ForPods(name) {
			f.oneOf(p, name, resources.CPU, resources.HugePagesPrefix, resources.Memory)
		}
	case bare:
		switch {
		case name == resources.CPU, name == resources.Memory, name == resources.EphemeralStorage,
			resources.IsHugePages(name):
		default:
			f.invalid(p, name, "must be a standard resource for containers")
		}
	case !resources.IsNative(name) && !extendedResource(name):
		f.invalid(p, name, "doesn't follow extended resource name standard")
	}
}

// amount checks a quantity of a resource and returns it; false when it cannot be read.
func (f *faults) amount(p *fieldPath, name string, text *metav1.Quantity) (resource.Quantity, bool) {
	q, err := value.Quantity(text)
	if err != nil {
		f.invalid(p, text.GetString_(), err.Error())
		return q, false
	}
	if q.Sign() < 0 {
		f.invalid(p, q.String(), "must be greater than or equal to 0")
	}
	if (countedResource(name) || extendedResource(name)) && q.MilliValue()%1000 != 0 {
		f.invalid(p, q.String(), "must be an integer")
	}
	return q, true
}

// requirements checks requests and limits (CTR-10): requests are at most limits, and equal to them where
// the resource cannot be overcommitted.
func (f *faults) requirements(p *fieldPath, r *corev1.ResourceRequirements, s scope) {
	computes, huge := false, false
	note := func(name string) {
		computes = computes || name == resources.CPU || name == resources.Memory
		huge = huge || resources.IsHugePages(name)
	}
	var limits map[string]resource.Quantity
	var room few
	for _, name := range sorted(&room, r.GetLimits()) {
		at := p.Child("limits").Key(name)
		note(name)
		f.resourceName(at, name, s)
		if q, ok := f.amount(at, name, r.GetLimits()[name]); ok {
			if limits == nil {
				limits = make(map[string]resource.Quantity, len(r.GetLimits()))
			}
			limits[name] = q
			f.wholePages(at, name, q)
		}
	}
	for _, name := range sorted(&room, r.GetRequests()) {
		at := p.Child("requests").Key(name)
		note(name)
		f.resourceName(at, name, s)
		q, ok := f.amount(at, name, r.GetRequests()[name])
		limit, limited := limits[name]
		if _, given := r.GetLimits()[name]; !given && !resources.CanOvercommit(name) {
			f.required(p.Child("limits"), "Limit must be set for non overcommitable resources")
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
			f.invalid(p.Child("requests"), q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case c > 0:
			f.invalid(p.Child("requests"), q.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
	}
	if huge && !computes {
		f.forbidden(p, "HugePages require cpu or memory")
	}
}

// wholePages checks that an amount of huge pages is a multiple of their size.
func (f *faults) wholePages(p *fieldPath, name string, q resource.Quantity) {
	text, ok := strings.CutPrefix(name, resources.HugePagesPrefix)
	if !ok {
		return
	}
	size, err := json.ParseQuantity(text)
	if text == "" || err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || size.Value() == 0 ||
		q.Value()%size.Value() != 0 {
		f.invalid(p, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
	}
}

// podRequirements checks requests and limits of the pod as a whole against those of its containers.
func (v *pod) podRequirements(p *fieldPath) {
	r := v.spec.GetResources()
	if r == nil {
		return
	}
	if v.spec.GetOs().GetName() == osWindows {
		v.forbidden(p, "may not be set for a windows pod")
		return
	}
	if len(r.GetClaims()) > 0 {
		v.forbidden(p.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	v.requirements(p, r, podResource)

	requests, limits := resources.ListOf(r.GetRequests()), resources.ListOf(r.GetLimits())
	needed := resources.ContainerRequests(v.spec)
	for _, have := range requests {
		if need, ok := needed.Get(have.Name); ok && need.Cmp(have.Quantity) > 0 {
			v.invalid(p.Child("requests").Key(have.Name), have.Quantity.String(),
				"must be greater than or equal to aggregate container requests of "+need.String())
		}
	}
	together := resources.ContainerLimits(v.spec)
	for _, have := range limits {
		if all, ok := together.Get(have.Name); ok && resources.IsHugePages(have.Name) && all.Cmp(have.Quantity) > 0 {
			v.invalid(p.Child("limits").Key(have.Name), have.Quantity.String(),
				"must be greater than or equal to aggregate container limits of "+all.String())
		}
	}
	for i, c := range v.spec.GetContainers() {
		for _, mine := range resources.ListOf(c.GetResources().GetLimits()) {
			if whole, ok := limits.Get(mine.Name); ok && mine.Quantity.Cmp(whole) > 0 {
				v.invalid(p.Child("containers").Index(i).Key(mine.Name).Child("limits"), mine.Quantity.String(),
					"must be less than or equal to pod limits of "+whole.String())
			}
		}
	}
}

// resourceFieldRef checks a reference to a container's request or limit (DOWN-1).
func (f *faults) resourceFieldRef(p *fieldPath, ref *corev1.ResourceFieldSelector, file bool) {
	name := ref.GetResource()
	pages := strings.HasPrefix(name, "limits.hugepages-") || strings.HasPrefix(name, "requests.hugepages-")
	switch {
	case file && ref.GetContainerName() == "":
		f.required(p.Child("containerName"), "")
	case name == "":
		f.required(p.Child("resource"), "")
	case !pages:
		f.oneOf(p.Child("resource"), name, "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	q, err := value.Quantity(ref.GetDivisor())
	if err != nil {
		f.invalid(p.Child("divisor"), ref.GetDivisor().GetString_(), err.Error())
		return
	}
	if q.IsZero() {
		return
	}
	const bytes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the "
	at := p.Child("divisor")
	switch _, kind, _ := strings.Cut(name, "."); {
	case name == "limits.cpu" || name == "requests.cpu":
		if s := q.String(); s != "1" && s != "1m" {
			f.invalid(at, name, "only divisor's values 1m and 1 are supported with the cpu resource")
		}
	case byteDivisor(q.String()):
	case name == "limits.memory" || name == "requests.memory":
		f.invalid(at, name, bytes+"memory resource")
	case pages:
		f.invalid(at, name, bytes+"hugepages resource")
	case kind == "ephemeral-storage":
		f.invalid(at, name, bytes+"local ephemeral storage resource")
	}
}

func byteDivisor(s string) bool {
	switch s {
	case "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei":
		return true
	}
	return false
}
