package podspec

import (
	"strings"

	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// podRequirements checks requests and limits of the pod as a whole against those of its containers.
func (v *Checker) podRequirements(p *validation.Path) {
	r := v.spec.GetResources()
	if r == nil {
		return
	}
	if v.spec.GetOs().GetName() == osWindows {
		v.Forbidden(p, "may not be set for a windows pod")
		return
	}
	if len(r.GetClaims()) > 0 {
		v.Forbidden(p.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	v.Requirements(p, r, validation.OfPod)

	requests, limits := resources.ListOf(r.GetRequests()), resources.ListOf(r.GetLimits())
	needed := resources.ContainerRequests(v.spec)
	for _, have := range requests {
		if need, ok := needed.Get(have.Name); ok && need.Cmp(have.Quantity) > 0 {
			v.Invalid(p.Child("requests").Key(have.Name), have.Quantity.String(),
				"must be greater than or equal to aggregate container requests of "+need.String())
		}
	}
	together := resources.ContainerLimits(v.spec)
	for _, have := range limits {
		if all, ok := together.Get(have.Name); ok && resources.IsHugePages(have.Name) && all.Cmp(have.Quantity) > 0 {
			v.Invalid(p.Child("limits").Key(have.Name), have.Quantity.String(),
				"must be greater than or equal to aggregate container limits of "+all.String())
		}
	}
	for i, c := range v.spec.GetContainers() {
		for _, mine := range resources.ListOf(c.GetResources().GetLimits()) {
			if whole, ok := limits.Get(mine.Name); ok && mine.Quantity.Cmp(whole) > 0 {
				v.Invalid(p.Child("containers").Index(i).Key(mine.Name).Child("limits"), mine.Quantity.String(),
					"must be less than or equal to pod limits of "+whole.String())
			}
		}
	}
}

// resourceFieldRef checks a reference to a container's request or limit (DOWN-1).
func (f *faults) resourceFieldRef(p *validation.Path, ref *corev1.ResourceFieldSelector, file bool) {
	name := ref.GetResource()
	pages := strings.HasPrefix(name, "limits.hugepages-") || strings.HasPrefix(name, "requests.hugepages-")
	switch {
	case file && ref.GetContainerName() == "":
		f.Required(p.Child("containerName"), "")
	case name == "":
		f.Required(p.Child("resource"), "")
	case !pages:
		f.OneOf(p.Child("resource"), name, "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	q, err := value.Quantity(ref.GetDivisor())
	if err != nil {
		f.Invalid(p.Child("divisor"), ref.GetDivisor().GetString_(), err.Error())
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
			f.Invalid(at, name, "only divisor's values 1m and 1 are supported with the cpu resource")
		}
	case byteDivisor(q.String()):
	case name == "limits.memory" || name == "requests.memory":
		f.Invalid(at, name, bytes+"memory resource")
	case pages:
		f.Invalid(at, name, bytes+"hugepages resource")
	case kind == "ephemeral-storage":
		f.Invalid(at, name, bytes+"local ephemeral storage resource")
	}
}

func byteDivisor(s string) bool {
	switch s {
	case "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei":
		return true
	}
	return false
}
