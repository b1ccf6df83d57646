package oracle

import (
	"testing"

	"google.golang.org/protobuf/proto"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"

	or "monoplane.dev/api/rbac/v1"
	ourrbac "monoplane.dev/apiserver/kinds/rbac"
)

func policyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"", "apps"}, Resources: []string{"pods", "*/scale"},
			ResourceNames: []string{"a"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/healthz/*"}},
	}
}

func subjects() []rbacv1.Subject {
	return []rbacv1.Subject{
		{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g", APIGroup: rbacv1.GroupName},
		{Kind: "ServiceAccount", Name: "a", Namespace: "d"},
	}
}

func TestClusterRolesAreJudgedAlike(t *testing.T) {
	role := func() *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:a", ResourceVersion: "1"},
			Rules: policyRules(), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
				{MatchLabels: map[string]string{"a": "b"}},
				{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}},
			}}}
	}
	r, bad := random(t), 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := role(), role()
		what := alter(r, k, 1+r.IntN(3), nil)
		now, was := internal(t, k, &rbac.ClusterRole{}), internal(t, old, &rbac.ClusterRole{})
		o, before := mustOurs(t, k, &or.ClusterRole{}), mustOurs(t, old, &or.ClusterRole{})
		ourrbac.DefaultClusterRole(o)
		ourrbac.DefaultClusterRole(before)
		opts := rbacvalidation.ClusterRoleValidationOptions{}
		created := compare(theirFaults(rbacvalidation.ValidateClusterRole(now, opts)),
			ourFaults(ourrbac.ValidateClusterRole(o)))
		updated := compare(theirFaults(rbacvalidation.ValidateClusterRoleUpdate(now, was, opts)),
			ourFaults(ourrbac.ValidateClusterRoleUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}

func TestRolesAreJudgedAlike(t *testing.T) {
	role := func() *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "system:a", Namespace: "d", ResourceVersion: "1"},
			Rules: policyRules()[:1]}
	}
	r, bad := random(t), 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := role(), role()
		what := alter(r, k, 1+r.IntN(3), nil)
		now, was := internal(t, k, &rbac.Role{}), internal(t, old, &rbac.Role{})
		o, before := mustOurs(t, k, &or.Role{}), mustOurs(t, old, &or.Role{})
		ourrbac.DefaultRole(o)
		ourrbac.DefaultRole(before)
		created := compare(theirFaults(rbacvalidation.ValidateRole(now)), ourFaults(ourrbac.ValidateRole(o)))
		updated := compare(theirFaults(rbacvalidation.ValidateRoleUpdate(now, was)),
			ourFaults(ourrbac.ValidateRoleUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}

func TestBindingsAreJudgedAlike(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "system:a", Namespace: "d", ResourceVersion: "1"}
	r, bad := random(t), 0
	for i := 0; i < *count && bad < 25; i++ {
		old := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects(),
			RoleRef: rbacv1.RoleRef{Kind: pick(r, []string{"Role", "ClusterRole"}), Name: "admin"}}
		k := old.DeepCopy()
		what := alter(r, k, 1+r.IntN(3), nil)
		now, was := internal(t, k, &rbac.RoleBinding{}), internal(t, old, &rbac.RoleBinding{})
		o, before := mustOurs(t, k, &or.RoleBinding{}), mustOurs(t, old, &or.RoleBinding{})
		ourrbac.DefaultRoleBinding(o)
		ourrbac.DefaultRoleBinding(before)
		created := compare(theirFaults(rbacvalidation.ValidateRoleBinding(now)),
			ourFaults(ourrbac.ValidateRoleBinding(o)))
		updated := compare(theirFaults(rbacvalidation.ValidateRoleBindingUpdate(now, was)),
			ourFaults(ourrbac.ValidateRoleBindingUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}

func TestClusterRoleBindingsAreJudgedAlike(t *testing.T) {
	r, bad := random(t), 0
	for i := 0; i < *count && bad < 25; i++ {
		old := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:a", ResourceVersion: "1"},
			Subjects: subjects(), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"}}
		k := old.DeepCopy()
		what := alter(r, k, 1+r.IntN(3), nil)
		now, was := internal(t, k, &rbac.ClusterRoleBinding{}), internal(t, old, &rbac.ClusterRoleBinding{})
		o, before := mustOurs(t, k, &or.ClusterRoleBinding{}), mustOurs(t, old, &or.ClusterRoleBinding{})
		ourrbac.DefaultClusterRoleBinding(o)
		ourrbac.DefaultClusterRoleBinding(before)
		created := compare(theirFaults(rbacvalidation.ValidateClusterRoleBinding(now)),
			ourFaults(ourrbac.ValidateClusterRoleBinding(o)))
		updated := compare(theirFaults(rbacvalidation.ValidateClusterRoleBindingUpdate(now, was)),
			ourFaults(ourrbac.ValidateClusterRoleBindingUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}

// mustOurs is ours for objects that have our form without fail.
func mustOurs[T proto.Message](t *testing.T, from upstream, to T) T {
	t.Helper()
	o, err := ours(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
