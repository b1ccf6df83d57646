package kinds

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object/builtin"

	coordinationv1 "monoplane.dev/api/coordination/v1"
)

func (Config) lease() definition {
	return definition{strategy: registry.Typed[*coordinationv1.Lease]{
		Kind:            coordinationv1.LeaseKind,
		RequireRevision: true, // a lease that is taken over unseen is no lease (OBJ-2)
		Default:         defaults.Lease,
		Admit:           ownLease,
		Validate:        validation.Lease,
		MayRead:         ownLease,
		Main: registry.TypedResource[*coordinationv1.Lease]{
			Authorize: func(ctx context.Context, _ *registry.Update, _, live *coordinationv1.Lease) error {
				return ownLease(ctx, live)
			},
			Validate: validation.LeaseUpdate,
		},
		Table: columns[*coordinationv1.Lease]{
			{"Holder", "string", 0, "Who holds the lease.", func(o *coordinationv1.Lease, _ moment) any {
				return o.GetSpec().GetHolderIdentity()
			}},
			age[*coordinationv1.Lease](),
		},
	}.Strategy()}
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
