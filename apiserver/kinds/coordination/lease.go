// Package coordination describes the kinds of coordination.k8s.io.
package coordination

import (
	"context"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object/builtin"

	coordinationv1 "monoplane.dev/api/coordination/v1"
)

// Lease describes the kind. An agent has one lease, by which others see that it lives.
func Lease(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*coordinationv1.Lease]{
		Kind:            coordinationv1.LeaseKind,
		CreateOnUpdate:  true,
		RequireRevision: true, // a lease that is taken over unseen is no lease (OBJ-2)
		Default:         DefaultLease,
		Admit:           ownLease,
		Validate:        ValidateLease,
		MayRead:         ownLease,
		Main: registry.TypedUpdateRules[*coordinationv1.Lease]{
			Authorize: func(ctx context.Context, _ *registry.Update, _, live *coordinationv1.Lease) error {
				return ownLease(ctx, live)
			},
			Validate: ValidateLeaseUpdate,
		},
		Table: define.Columns[*coordinationv1.Lease]{
			define.Text("Holder", "Who holds the lease.", func(o *coordinationv1.Lease) string {
				return o.GetSpec().GetHolderIdentity()
			}),
			define.Age[*coordinationv1.Lease](),
		},
	}.Strategy()}
}

// DefaultLease fills in a lease.
func DefaultLease(l *coordinationv1.Lease) {
	defaults.Message(&l.Metadata)
	defaults.Message(&l.Spec)
}

// ValidateLease checks a lease that is to be created.
func ValidateLease(l *coordinationv1.Lease) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMeta(l.GetMetadata(), true, validation.NameIsSubdomain)
		checkLeaseSpec(f, f.Root("spec"), l.GetSpec())
	}
	return f.Causes()
}

// ValidateLeaseUpdate checks that a change of a lease is allowed.
func ValidateLeaseUpdate(new, old *coordinationv1.Lease) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.ObjectMeta(new.GetMetadata(), true, validation.NameIsSubdomain)
		checkLeaseSpec(f, f.Root("spec"), new.GetSpec())
	}
	return f.Causes()
}

func checkLeaseSpec(f *validation.Faults, p *validation.Path, s *coordinationv1.LeaseSpec) {
	if s == nil {
		return
	}
	if d := s.LeaseDurationSeconds; d != nil && *d <= 0 {
		f.InvalidValue(p.Child("leaseDurationSeconds"), *d, "must be greater than 0")
	}
	if t := s.LeaseTransitions; t != nil && *t < 0 {
		f.InvalidValue(p.Child("leaseTransitions"), *t, "must be greater than or equal to 0")
	}
	if s.Strategy != nil {
		at := p.Child("strategy").Child("strategy") // Kubernetes names it twice.
		if strings.Contains(s.GetStrategy(), "/") {
			f.Qualified(at, s.GetStrategy())
		} else {
			f.OneOf(at, s.GetStrategy(), "OldestEmulationVersion")
		}
	}
	if s.GetPreferredHolder() != "" && s.GetStrategy() == "" {
		f.Forbidden(p.Child("preferredHolder"), "may only be specified if `strategy` is defined")
	}
}

// ownLease lets an agent act on the lease of its own node only.
func ownLease(ctx context.Context, o *coordinationv1.Lease) error {
	id, m := auth.From(ctx), o.GetMetadata()
	if id.Class == auth.Node && (m.GetNamespace() != builtin.NodeLeases || m.GetName() != id.Node) {
		return apierrors.NewForbidden(coordinationv1.LeaseKind, m.GetName(),
			"%s may only use lease %q in namespace %q", id.Name, id.Node, builtin.NodeLeases)
	}
	return nil
}
