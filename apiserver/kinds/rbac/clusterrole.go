package rbac

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// ClusterRole describes the kind.
func ClusterRole(c define.Config) define.Definition {
	given := escalation{c.Rights}
	return define.Definition{Strategy: registry.Typed[*rbacv1.ClusterRole]{
		Kind:           rbacv1.ClusterRoleKind,
		CreateOnUpdate: true,
		Default:        DefaultClusterRole,
		Validate:       ValidateClusterRole,
		Admit: func(ctx context.Context, o *rbacv1.ClusterRole) error {
			return given.role(ctx, o, nil, o.GetRules())
		},
		Main: registry.TypedUpdateRules[*rbacv1.ClusterRole]{
			Authorize: func(ctx context.Context, _ *registry.Update, next, live *rbacv1.ClusterRole) error {
				return given.role(ctx, next, live, next.GetRules())
			},
			Validate: ValidateClusterRoleUpdate,
		},
		ReadCached: true,
		Table:      define.Columns[*rbacv1.ClusterRole]{define.Created[*rbacv1.ClusterRole]()},
	}.Strategy()}
}

// DefaultClusterRole fills in a role; call it on create and update.
func DefaultClusterRole(o *rbacv1.ClusterRole) { defaults.Message(&o.Metadata) }

// ValidateClusterRole checks a role that is to be created.
func ValidateClusterRole(o *rbacv1.ClusterRole) []apierrors.Cause { return wrongClusterRole(o, nil) }

// ValidateClusterRoleUpdate checks that a change of a role is allowed.
func ValidateClusterRoleUpdate(new, old *rbacv1.ClusterRole) []apierrors.Cause {
	return wrongClusterRole(new, old)
}

func wrongClusterRole(o, old *rbacv1.ClusterRole) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, wrongName)
		checkRules(f, o.GetRules(), false)
		if o.GetAggregationRule() == nil {
			continue
		}
		p := f.Root("aggregationRule").Child("clusterRoleSelectors")
		selectors := o.AggregationRule.GetClusterRoleSelectors()
		if len(selectors) == 0 {
			f.Required(p, "at least one clusterRoleSelector required if aggregationRule is non-nil")
		}
		for i, s := range selectors {
			before := f.Count()
			f.LabelSelector(p.Index(i), s)
			if f.Count() > before {
				f.InvalidValue(p.Index(i), nil, "invalid label selector.")
			}
		}
	}
	return f.Causes()
}
