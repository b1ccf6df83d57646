package rbac

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/object"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// escalation refuses to let somebody give rights that he has not got, to others or to himself: in the rules of a role,
// unless he has the verb "escalate" on it, or by a binding to a role, unless he has the verb "bind" on that.
type escalation struct{ rights *auth.Authorizer }

// everything is what somebody must be allowed to do who lets a role have the rules of others, whatever those will be.
var everything = []*rbacv1.PolicyRule{
	{Verbs: []string{"*"}, ApiGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// role judges a role that is written; live is nil for a new one.
func (e escalation) role(ctx context.Context, next, live object.Object, rules []*rbacv1.PolicyRule) error {
	if live != nil && onlyCollected(next, live) {
		return nil
	}
	kind, m := next.ObjectKind(), next.GetMetadata()
	asks := auth.Attributes{
		Verb: "escalate", Group: kind.Group, Resource: kind.Plural, Namespaced: kind.Namespaced, Namespace: m.GetNamespace(),
	}
	if live != nil {
		asks.Name = m.GetName()
	}
	if e.rights.Authorize(auth.From(ctx), asks) == nil {
		return nil
	}
	if why := e.lacks(ctx, m.GetNamespace(), rules); why != "" {
		return apierrors.NewForbidden(kind, m.GetName(), "%s", why)
	}
	if (aggregates(next) || aggregates(live)) && e.lacks(ctx, "", everything) != "" {
		return apierrors.NewForbidden(kind, m.GetName(), "must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

func aggregates(o object.Object) bool {
	r, ok := o.(*rbacv1.ClusterRole)
	return ok && len(r.GetAggregationRule().GetClusterRoleSelectors()) > 0
}

// binding judges a binding that is written; live is nil for a new one.
func (e escalation) binding(ctx context.Context, next, live binding) error {
	if live != nil && onlyCollected(next, live) {
		return nil
	}
	ref, namespace := next.GetRoleRef(), next.GetMetadata().GetNamespace()
	role := rbacv1.RoleKind
	if ref.GetKind() == role.Kind || ref.GetKind() == rbacv1.ClusterRoleKind.Kind {
		if ref.GetKind() != role.Kind {
			role = rbacv1.ClusterRoleKind
		}
		if e.rights.Authorize(auth.From(ctx), auth.Attributes{
			Verb: "bind", Group: ref.GetApiGroup(), Resource: role.Plural, Namespaced: true, Namespace: namespace,
			Name: ref.GetName(),
		}) == nil {
			return nil
		}
	}
	rules, ok := e.rights.RulesIn(ref, namespace)
	if !ok {
		return apierrors.NewNotFound(role, ref.GetName())
	}
	if why := e.lacks(ctx, namespace, rules); why != "" {
		return apierrors.NewForbidden(next.ObjectKind(), next.GetMetadata().GetName(), "%s", why)
	}
	return nil
}

// lacks says which of some rights the user of a request has not got in a namespace, "" for none.
func (e escalation) lacks(ctx context.Context, namespace string, rules []*rbacv1.PolicyRule) string {
	id := auth.From(ctx)
	held, unknown := e.rights.RulesOf(id, namespace)
	missing, ok := roles.Missing(held, rules)
	var what string
	switch {
	case !ok:
		what = "more than can be named"
	case len(missing) == 0:
		return ""
	default:
		what = roles.Describe(missing)
	}
	var groups []string
	if id.User != nil {
		groups = id.User.Groups
	}
	if len(unknown) > 0 {
		what += "; resolution errors: [" + strings.Join(unknown, ", ") + "]"
	}
	return fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		id.Name, groups, what)
}

// onlyCollected says whether nothing changes but what garbage collection needs: finalizers and owners.
func onlyCollected(next, live object.Object) bool {
	next = object.Clone(next)
	m, was := next.GetMetadata(), live.GetMetadata()
	m.OwnerReferences, m.Finalizers, m.ManagedFields = was.OwnerReferences, was.Finalizers, was.ManagedFields
	m.ResourceVersion = was.ResourceVersion
	return proto.Equal(next, live)
}
