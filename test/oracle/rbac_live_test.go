//go:build kubernetes

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	covers "k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/rbac/validation"
	registryvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
	rbacauthorizer "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"monoplane.dev/apiserver/auth/roles"
)

func theirClusterRole(t testing.TB, k, old *rbacv1.ClusterRole) verdict {
	now, was := internal(t, k, &rbac.ClusterRole{}), internal(t, old, &rbac.ClusterRole{})
	opts := validation.ClusterRoleValidationOptions{}
	return verdict{
		Created: theirFaults(validation.ValidateClusterRole(now, opts)),
		Updated: theirFaults(validation.ValidateClusterRoleUpdate(now, was, opts)),
	}
}

func theirRole(t testing.TB, k, old *rbacv1.Role) verdict {
	now, was := internal(t, k, &rbac.Role{}), internal(t, old, &rbac.Role{})
	return verdict{
		Created: theirFaults(validation.ValidateRole(now)), Updated: theirFaults(validation.ValidateRoleUpdate(now, was)),
	}
}

func theirRoleBinding(t testing.TB, k, old *rbacv1.RoleBinding) verdict {
	now, was := internal(t, k, &rbac.RoleBinding{}), internal(t, old, &rbac.RoleBinding{})
	return verdict{
		Created: theirFaults(validation.ValidateRoleBinding(now)),
		Updated: theirFaults(validation.ValidateRoleBindingUpdate(now, was)),
	}
}

func theirClusterRoleBinding(t testing.TB, k, old *rbacv1.ClusterRoleBinding) verdict {
	now, was := internal(t, k, &rbac.ClusterRoleBinding{}), internal(t, old, &rbac.ClusterRoleBinding{})
	return verdict{
		Created: theirFaults(validation.ValidateClusterRoleBinding(now)),
		Updated: theirFaults(validation.ValidateClusterRoleBindingUpdate(now, was)),
	}
}

// theirDecisions says which of some requests Kubernetes allows.
func theirDecisions(
	t testing.TB, all []*rbacv1.Role, bindings []*rbacv1.RoleBinding, clusterRoles []*rbacv1.ClusterRole,
	clusterBindings []*rbacv1.ClusterRoleBinding, requests []*roles.Request,
) (allows []bool) {
	resolver, _ := registryvalidation.NewTestRuleResolver(all, bindings, clusterRoles, clusterBindings)
	for _, q := range requests {
		u := &user.DefaultInfo{Name: q.User, Groups: q.Groups}
		a := authorizer.AttributesRecord{User: u, Verb: q.Verb, Namespace: q.Namespace, APIGroup: q.Group, Name: q.Name,
			Resource: q.Resource, Subresource: q.Subresource, Path: q.Path, ResourceRequest: q.Path == ""}
		allowed := false
		resolver.VisitRulesFor(t.Context(), u, a.Namespace, func(_ fmt.Stringer, rule *rbacv1.PolicyRule, _ error) bool {
			allowed = rule != nil && rbacauthorizer.RuleAllows(a, rule)
			return !allowed
		})
		allows = append(allows, allowed)
	}
	return allows
}

// theirMissingRights describes the rights that are wanted and not held.
func theirMissingRights(t testing.TB, held, wanted []rbacv1.PolicyRule) []string {
	ok, lacks := covers.Covers(held, wanted)
	if ok != (len(lacks) == 0) {
		t.Fatalf("%v covers %v: %t, %v", held, wanted, ok, lacks)
	}
	compact, err := registryvalidation.CompactRules(lacks)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, rule := range compact {
		lines[rbacv1helpers.CompactString(rule)] = true
	}
	return slices.Sorted(maps.Keys(lines))
}

func theirDefaultRoles(testing.TB) defaultRoles {
	return defaultRoles{bootstrappolicy.ClusterRoles(), bootstrappolicy.ClusterRoleBindings()}
}
