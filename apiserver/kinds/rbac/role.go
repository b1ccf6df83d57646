// Package rbac describes the kinds of the group rbac.authorization.k8s.io: roles, which say what may be done, and
// bindings, which say who may do it. Package auth reads them to judge requests.
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

// Role describes the kind.
func Role(c define.Config) define.Definition {
	given := escalation{c.Rights}
	return define.Definition{Strategy: registry.Typed[*rbacv1.Role]{
		Kind:           rbacv1.RoleKind,
		CreateOnUpdate: true,
		Default:        DefaultRole,
		Validate:       ValidateRole,
		Admit: func(ctx context.Context, o *rbacv1.Role) error {
			return given.role(ctx, o, nil, o.GetRules())
		},
		Main: registry.TypedUpdateRules[*rbacv1.Role]{
			Authorize: func(ctx context.Context, _ *registry.Update, next, live *rbacv1.Role) error {
				return given.role(ctx, next, live, next.GetRules())
			},
			Validate: ValidateRoleUpdate,
		},
		ReadCached: true,
		Table:      define.Columns[*rbacv1.Role]{define.Created[*rbacv1.Role]()},
	}.Strategy()}
}

// DefaultRole fills in a role; call it on create and update.
func DefaultRole(o *rbacv1.Role) { defaults.Message(&o.Metadata) }

// ValidateRole checks a role that is to be created.
func ValidateRole(o *rbacv1.Role) []apierrors.Cause { return wrongRole(o, nil) }

// ValidateRoleUpdate checks that a change of a role is allowed.
func ValidateRoleUpdate(new, old *rbacv1.Role) []apierrors.Cause { return wrongRole(new, old) }

func wrongRole(o, old *rbacv1.Role) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), true, wrongName)
		checkRules(f, o.GetRules(), true)
	}
	return f.Causes()
}

// wrongName says what is wrong with the name of a role or a binding. What begins a name that is generated has to be a
// name itself.
func wrongName(name string, _ bool) []string { return validation.NameIsPathSegment(name, false) }

// checkRules checks the rules of a role. What is no resource is in no namespace.
func checkRules(f *validation.Faults, rules []*rbacv1.PolicyRule, namespaced bool) {
	p := f.Root("rules")
	for i, r := range rules {
		at := p.Index(i)
		if len(r.GetVerbs()) == 0 {
			f.Required(at.Child("verbs"), "verbs must contain at least one value")
		}
		if urls := r.GetNonResourceURLs(); len(urls) > 0 {
			if namespaced {
				f.InvalidValue(at.Child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs")
			}
			if len(r.GetApiGroups())+len(r.GetResources())+len(r.GetResourceNames()) > 0 {
				f.InvalidValue(at.Child("nonResourceURLs"), urls,
					"rules cannot apply to both regular resources and non-resource URLs")
			}
			continue
		}
		if len(r.GetApiGroups()) == 0 {
			f.Required(at.Child("apiGroups"), "resource rules must supply at least one api group")
		}
		if len(r.GetResources()) == 0 {
			f.Required(at.Child("resources"), "resource rules must supply at least one resource")
		}
	}
}
