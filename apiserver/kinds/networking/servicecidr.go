package networking

import (
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	networkingv1 "monoplane.dev/api/networking/v1"
)

// ServiceCIDR describes the kind.
func ServiceCIDR(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*networkingv1.ServiceCIDR]{
		Kind:     networkingv1.ServiceCIDRKind,
		Default:  DefaultServiceCIDR,
		Validate: ValidateServiceCIDR,
		Guards: define.Warned[*networkingv1.ServiceCIDR](
			"ServiceCIDRs have no effect in this version: Services have addresses of --service-cluster-ip-range"),
		Main: registry.TypedUpdateRules[*networkingv1.ServiceCIDR]{Validate: ValidateServiceCIDRUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*networkingv1.ServiceCIDR]{
			"status": {Keeps: registry.AllMetadata, Validate: ValidateServiceCIDRStatusUpdate},
		},
		Table: define.Columns[*networkingv1.ServiceCIDR]{
			define.Text("CIDRs", "The addresses of the range.", func(o *networkingv1.ServiceCIDR) string {
				return strings.Join(o.GetSpec().GetCidrs(), ",")
			}),
			define.Age[*networkingv1.ServiceCIDR](),
		},
	}.Strategy()}
}

// DefaultServiceCIDR fills in a range; call it on create and update.
func DefaultServiceCIDR(o *networkingv1.ServiceCIDR) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
}

// ValidateServiceCIDR checks a range that is to be created.
func ValidateServiceCIDR(o *networkingv1.ServiceCIDR) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), nil, false, validation.NameIsSubdomain)
		checkNetworks(f, f.Root("spec").Child("cidrs"), o.GetSpec())
	}
	return f.Causes()
}

// ValidateServiceCIDRUpdate checks that a change of a range is allowed: a network stays, and at most one of the other
// family joins it.
func ValidateServiceCIDRUpdate(new, old *networkingv1.ServiceCIDR) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		p, now, was := f.Root("spec").Child("cidrs"), new.GetSpec().GetCidrs(), old.GetSpec().GetCidrs()
		joined := len(was) == 1 && len(now) == 2
		if len(now) != len(was) && !joined {
			f.InvalidValue(p, now, validation.Immutable)
			continue
		}
		for i := range was {
			if now[i] != was[i] {
				f.Invalid(p.Index(i), now[i], validation.Immutable)
			}
		}
		if joined {
			checkNetworks(f, p, new.GetSpec())
		}
	}
	return f.Causes()
}

// ValidateServiceCIDRStatusUpdate checks a change of a range's status, which may say anything.
func ValidateServiceCIDRStatusUpdate(new, old *networkingv1.ServiceCIDR) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	}
	return f.Causes()
}

// checkNetworks checks the networks of a range: one, or one of each family.
func checkNetworks(f *validation.Faults, p *validation.Path, s *networkingv1.ServiceCIDRSpec) {
	list := s.GetCidrs()
	switch {
	case len(list) == 0:
		f.Required(p, "at least one CIDR required")
		return
	case len(list) > 2:
		f.InvalidValue(p, map[string]any{"CIDRs": list}, "may only hold up to 2 values")
		return
	}
	for i, text := range list {
		for _, e := range utilvalidation.IsValidCIDR(nil, text) {
			f.Add(p.Index(i), e)
		}
	}
	first := utilnet.IPFamilyOfCIDRString(list[0])
	if len(list) == 2 && first != utilnet.IPFamilyUnknown && first == utilnet.IPFamilyOfCIDRString(list[1]) {
		f.InvalidValue(p, list,
			"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
	}
}
