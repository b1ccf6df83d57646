package validation

import (
	"strings"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	"monoplane.dev/apierrors"
)

// Lease checks a lease that is to be created.
func Lease(l *coordinationv1.Lease) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMeta(l.GetMetadata(), true, NameIsSubdomain)
		f.leaseSpec(f.root("spec"), l.GetSpec())
	}
	return f.causes()
}

// LeaseUpdate checks that a change of a lease is allowed.
func LeaseUpdate(new, old *coordinationv1.Lease) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.objectMeta(new.GetMetadata(), true, NameIsSubdomain)
		f.leaseSpec(f.root("spec"), new.GetSpec())
	}
	return f.causes()
}

func (f *faults) leaseSpec(p *fieldPath, s *coordinationv1.LeaseSpec) {
	if s == nil {
		return
	}
	if d := s.LeaseDurationSeconds; d != nil && *d <= 0 {
		f.invalidValue(p.Child("leaseDurationSeconds"), *d, "must be greater than 0")
	}
	if t := s.LeaseTransitions; t != nil && *t < 0 {
		f.invalidValue(p.Child("leaseTransitions"), *t, "must be greater than or equal to 0")
	}
	if s.Strategy != nil {
		at := p.Child("strategy").Child("strategy") // Kubernetes names it twice.
		if strings.Contains(s.GetStrategy(), "/") {
			f.qualified(at, s.GetStrategy())
		} else {
			f.oneOf(at, s.GetStrategy(), "OldestEmulationVersion")
		}
	}
	if s.GetPreferredHolder() != "" && s.GetStrategy() == "" {
		f.forbidden(p.Child("preferredHolder"), "may only be specified if `strategy` is defined")
	}
}
