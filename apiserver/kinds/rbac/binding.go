package rbac

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

// group is the API group of roles, and of subjects that are users and groups.
const group = "rbac.authorization.k8s.io"

// binding is a RoleBinding or a ClusterRoleBinding.
type binding interface {
	object.Object
	GetSubjects() []*rbacv1.Subject
	GetRoleRef() *rbacv1.RoleRef
}

// RoleBinding describes the kind.
func RoleBinding(c define.Config) define.Definition {
	given := escalation{c.Rights}
	return define.Definition{Strategy: registry.Typed[*rbacv1.RoleBinding]{
		Kind:           rbacv1.RoleBindingKind,
		CreateOnUpdate: true,
		Default:        DefaultRoleBinding,
		Validate:       ValidateRoleBinding,
		Admit: func(ctx context.Context, o *rbacv1.RoleBinding) error {
			return given.binding(ctx, o, nil)
		},
		Main: registry.TypedUpdateRules[*rbacv1.RoleBinding]{
			Authorize: func(ctx context.Context, _ *registry.Update, next, live *rbacv1.RoleBinding) error {
				return given.binding(ctx, next, live)
			},
			Validate: ValidateRoleBindingUpdate,
		},
		ReadCached: true,
		Table:      bindingTable[*rbacv1.RoleBinding](),
	}.Strategy()}
}

// ClusterRoleBinding describes the kind.
func ClusterRoleBinding(c define.Config) define.Definition {
	given := escalation{c.Rights}
	return define.Definition{Strategy: registry.Typed[*rbacv1.ClusterRoleBinding]{
		Kind:           rbacv1.ClusterRoleBindingKind,
		CreateOnUpdate: true,
		Default:        DefaultClusterRoleBinding,
		Validate:       ValidateClusterRoleBinding,
		Admit: func(ctx context.Context, o *rbacv1.ClusterRoleBinding) error {
			return given.binding(ctx, o, nil)
		},
		Main: registry.TypedUpdateRules[*rbacv1.ClusterRoleBinding]{
			Authorize: func(ctx context.Context, _ *registry.Update, next, live *rbacv1.ClusterRoleBinding) error {
				return given.binding(ctx, next, live)
			},
			Validate: ValidateClusterRoleBindingUpdate,
		},
		ReadCached: true,
		Table:      bindingTable[*rbacv1.ClusterRoleBinding](),
	}.Strategy()}
}

// DefaultRoleBinding fills in a binding; call it on create and update.
func DefaultRoleBinding(o *rbacv1.RoleBinding) { defaultBinding(&o.Metadata, &o.RoleRef, o.Subjects) }

// DefaultClusterRoleBinding fills in a binding; call it on create and update.
func DefaultClusterRoleBinding(o *rbacv1.ClusterRoleBinding) {
	defaultBinding(&o.Metadata, &o.RoleRef, o.Subjects)
}

func defaultBinding(meta **metav1.ObjectMeta, ref **rbacv1.RoleRef, subjects []*rbacv1.Subject) {
	defaults.Message(meta)
	defaults.Message(ref)
	if (*ref).ApiGroup == "" {
		(*ref).ApiGroup = group
	}
	for _, s := range subjects {
		if s.GetApiGroup() == "" && (s.GetKind() == "User" || s.GetKind() == "Group") {
			s.ApiGroup = group
		}
	}
}

// ValidateRoleBinding checks a binding that is to be created.
func ValidateRoleBinding(o *rbacv1.RoleBinding) []apierrors.Cause { return wrongBinding(o, nil, true) }

// ValidateRoleBindingUpdate checks that a change of a binding is allowed: its role stays.
func ValidateRoleBindingUpdate(new, old *rbacv1.RoleBinding) []apierrors.Cause {
	return wrongBinding(new, old, true)
}

// ValidateClusterRoleBinding checks a binding that is to be created.
func ValidateClusterRoleBinding(o *rbacv1.ClusterRoleBinding) []apierrors.Cause {
	return wrongBinding(o, nil, false)
}

// ValidateClusterRoleBindingUpdate checks that a change of a binding is allowed: its role stays.
func ValidateClusterRoleBindingUpdate(new, old *rbacv1.ClusterRoleBinding) []apierrors.Cause {
	return wrongBinding(new, old, false)
}

// wrongBinding checks a binding; old is nil for a new one. Whether the role exists is nobody's concern: it may be made
// later, and until then the binding gives nothing.
func wrongBinding(o, old binding, namespaced bool) []apierrors.Cause {
	kinds := []string{"Role", "ClusterRole"}
	var was *metav1.ObjectMeta
	if old != nil {
		was = old.GetMetadata()
	}
	if !namespaced {
		kinds = kinds[1:]
	}
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), was, namespaced, wrongName)
		ref, at := o.GetRoleRef(), f.Root("roleRef")
		f.OneOf(at.Child("apiGroup"), ref.GetApiGroup(), group)
		f.OneOf(at.Child("kind"), ref.GetKind(), kinds...)
		if ref.GetName() == "" {
			f.Required(at.Child("name"), "")
		} else {
			f.Invalid(at.Child("name"), ref.GetName(), wrongName(ref.GetName(), false)...)
		}
		if old != nil && !proto.Equal(ref, old.GetRoleRef()) {
			f.Invalid(at, ref.GetApiGroup()+"/"+ref.GetKind()+"/"+ref.GetName(), "cannot change roleRef")
		}
		for i, s := range o.GetSubjects() {
			checkSubject(f, f.Root("subjects").Index(i), s, namespaced)
		}
	}
	return f.Causes()
}

func checkSubject(f *validation.Faults, p *validation.Path, s *rbacv1.Subject, namespaced bool) {
	if s.GetName() == "" {
		f.Required(p.Child("name"), "")
	}
	switch s.GetKind() {
	case "ServiceAccount":
		if s.GetName() != "" {
			f.Subdomain(p.Child("name"), s.GetName())
		}
		f.OneOf(p.Child("apiGroup"), s.GetApiGroup(), "")
		if !namespaced && s.GetNamespace() == "" {
			f.Required(p.Child("namespace"), "")
		}
	case "User", "Group":
		f.OneOf(p.Child("apiGroup"), s.GetApiGroup(), group)
	default:
		f.OneOf(p.Child("kind"), s.GetKind(), "ServiceAccount", "User", "Group")
	}
}

func bindingTable[T binding]() define.Columns[T] {
	subjects := func(kind string) func(T) string {
		return func(o T) string {
			var names []string
			for _, s := range o.GetSubjects() {
				switch {
				case s.GetKind() != kind:
				case kind == "ServiceAccount":
					names = append(names, s.GetNamespace()+"/"+s.GetName())
				default:
					names = append(names, s.GetName())
				}
			}
			return strings.Join(names, ", ")
		}
	}
	return define.Columns[T]{
		define.Text("Role", "Role that is given.", func(o T) string {
			return o.GetRoleRef().GetKind() + "/" + o.GetRoleRef().GetName()
		}),
		define.Age[T](),
		define.Text("Users", "Users who get the role.", subjects("User")).Wide(),
		define.Text("Groups", "Groups whose members get the role.", subjects("Group")).Wide(),
		define.Text("ServiceAccounts", "Service accounts that get the role.", subjects("ServiceAccount")).Wide(),
	}
}
