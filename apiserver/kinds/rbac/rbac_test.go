package rbac_test

import (
	"strings"
	"testing"
	"time"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/rbac"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

func rule(verbs, groups, resources, urls string) *rbacv1.PolicyRule {
	return &rbacv1.PolicyRule{
		Verbs: strings.Fields(verbs), ApiGroups: strings.Fields(groups), Resources: strings.Fields(resources),
		NonResourceURLs: strings.Fields(urls),
	}
}

// spec: OBJ-15
func TestRulesOfRoles(t *testing.T) {
	for name, x := range map[string]struct {
		rule             *rbacv1.PolicyRule
		inRole, inBigger []string
	}{
		"good":         {rule: rule("get", "apps", "deployments", "")},
		"no verbs":     {rule("", "apps", "deployments", ""), []string{"Required rules[0].verbs"}, []string{"Required rules[0].verbs"}},
		"no resources": {rule("get", "apps", "", ""), []string{"Required rules[0].resources"}, []string{"Required rules[0].resources"}},
		"no group":     {rule("get", "", "pods", ""), []string{"Required rules[0].apiGroups"}, []string{"Required rules[0].apiGroups"}},
		"a path":       {rule("get", "", "", "/metrics"), []string{"Invalid rules[0].nonResourceURLs"}, nil},
		"both": {rule("get", "apps", "", "/metrics"),
			[]string{"Invalid rules[0].nonResourceURLs", "Invalid rules[0].nonResourceURLs"},
			[]string{"Invalid rules[0].nonResourceURLs"}},
	} {
		rules := []*rbacv1.PolicyRule{x.rule}
		kindtest.Judge(t, name, rbac.ValidateRole(
			&rbacv1.Role{Metadata: kindtest.Meta("a:b", "d"), Rules: rules}), x.inRole...)
		kindtest.Judge(t, name, rbac.ValidateClusterRole(
			&rbacv1.ClusterRole{Metadata: kindtest.Meta("a:b", ""), Rules: rules}), x.inBigger...)
	}
	kindtest.Judge(t, "aggregating nothing", rbac.ValidateClusterRole(&rbacv1.ClusterRole{
		Metadata: kindtest.Meta("a", ""), AggregationRule: &rbacv1.AggregationRule{},
	}), "Required aggregationRule.clusterRoleSelectors")
	kindtest.Judge(t, "a bad name", rbac.ValidateRole(&rbacv1.Role{Metadata: kindtest.Meta("a%b", "d")}),
		"Invalid metadata.name")
}

// A binding to a role that does not exist is as good as any: the role may be made later.
//
// spec: OBJ-15
func TestBindings(t *testing.T) {
	binding := func(subjects ...*rbacv1.Subject) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{Metadata: kindtest.Meta("a", "d"), Subjects: subjects,
			RoleRef: &rbacv1.RoleRef{Kind: "Role", Name: "none"}}
		rbac.DefaultRoleBinding(b)
		return b
	}
	cluster := func(subjects ...*rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{Metadata: kindtest.Meta("a", ""), Subjects: subjects,
			RoleRef: &rbacv1.RoleRef{Kind: "ClusterRole", Name: "none"}}
		rbac.DefaultClusterRoleBinding(b)
		return b
	}
	account := &rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}
	user, unknown := &rbacv1.Subject{Kind: "User", Name: "u"}, &rbacv1.Subject{Kind: "Robot", Name: "r"}
	kindtest.Judge(t, "good", rbac.ValidateRoleBinding(binding(account, user)))
	kindtest.Judge(t, "an account without a namespace", rbac.ValidateClusterRoleBinding(cluster(account, user)),
		"Required subjects[0].namespace")
	kindtest.Judge(t, "an unknown subject", rbac.ValidateRoleBinding(binding(unknown)), "NotSupported subjects[0].kind")
	if user.ApiGroup != "rbac.authorization.k8s.io" || account.ApiGroup != "" {
		t.Errorf("the groups of a user and an account default to %q and %q", user.ApiGroup, account.ApiGroup)
	}
	wrong := cluster()
	wrong.RoleRef.Kind = "Role"
	kindtest.Judge(t, "a Role everywhere", rbac.ValidateClusterRoleBinding(wrong), "NotSupported roleRef.kind")
	other := binding()
	other.RoleRef.Name = "other"
	kindtest.Judge(t, "another role", rbac.ValidateRoleBindingUpdate(other, binding()), "Invalid roleRef")
	cells := rbac.RoleBinding(define.Config{}).Strategy.Table.Cells(
		binding(account, user, &rbacv1.Subject{Kind: "User", Name: "v"}), time.Now())
	if cells[1] != "Role/none" || cells[3] != "u, v" || cells[4] != "" || cells[5] != "/a" {
		t.Errorf("the cells of a binding are %v", cells)
	}
}

func TestRolesAreShownWithTheTimeOfTheirCreation(t *testing.T) {
	o := &rbacv1.Role{Metadata: &metav1.ObjectMeta{Name: "r", CreationTimestamp: &metav1.Time{Seconds: 86400}}}
	cells := rbac.Role(define.Config{}).Strategy.Table.Cells(o, time.Unix(100000, 0))
	if len(cells) != 2 || cells[1] != "1970-01-02T00:00:00Z" {
		t.Errorf("cells: %v", cells)
	}
}
