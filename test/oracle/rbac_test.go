package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	or "monoplane.dev/api/rbac/v1"
	"monoplane.dev/apiserver/auth/roles"
	ourrbac "monoplane.dev/apiserver/kinds/rbac"
	"monoplane.dev/controllers/defaultroles"
	"monoplane.dev/object"
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
		theirs := ask[verdict](t, "clusterroles", k, old)
		o, before := mustOurs(t, k, &or.ClusterRole{}), mustOurs(t, old, &or.ClusterRole{})
		ourrbac.DefaultClusterRole(o)
		ourrbac.DefaultClusterRole(before)
		created := compare(theirs.Created,
			ourFaults(ourrbac.ValidateClusterRole(o)))
		updated := compare(theirs.Updated,
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
		theirs := ask[verdict](t, "roles", k, old)
		o, before := mustOurs(t, k, &or.Role{}), mustOurs(t, old, &or.Role{})
		ourrbac.DefaultRole(o)
		ourrbac.DefaultRole(before)
		created := compare(theirs.Created, ourFaults(ourrbac.ValidateRole(o)))
		updated := compare(theirs.Updated,
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
		theirs := ask[verdict](t, "rolebindings", k, old)
		o, before := mustOurs(t, k, &or.RoleBinding{}), mustOurs(t, old, &or.RoleBinding{})
		ourrbac.DefaultRoleBinding(o)
		ourrbac.DefaultRoleBinding(before)
		created := compare(theirs.Created,
			ourFaults(ourrbac.ValidateRoleBinding(o)))
		updated := compare(theirs.Updated,
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
		theirs := ask[verdict](t, "clusterrolebindings", k, old)
		o, before := mustOurs(t, k, &or.ClusterRoleBinding{}), mustOurs(t, old, &or.ClusterRoleBinding{})
		ourrbac.DefaultClusterRoleBinding(o)
		ourrbac.DefaultClusterRoleBinding(before)
		created := compare(theirs.Created,
			ourFaults(ourrbac.ValidateClusterRoleBinding(o)))
		updated := compare(theirs.Updated,
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

// rolePolicy is some roles and bindings, as Kubernetes' objects and in our index.
type rolePolicy struct {
	roles           []*rbacv1.Role
	clusterRoles    []*rbacv1.ClusterRole
	bindings        []*rbacv1.RoleBinding
	clusterBindings []*rbacv1.ClusterRoleBinding
	index           *roles.Index
}

var (
	rbacVerbs     = []string{"get", "list", "*", "escalate"}
	rbacGroups    = []string{"", "apps", "*"}
	rbacResources = []string{"pods", "pods/log", "*", "*/scale", "deployments", "deployments/scale", "pods/", "a/b/c",
		"*/"}
	rbacNames      = []string{"a", "b", ""}
	rbacPaths      = []string{"/metrics", "/h/*", "*", "/h", "/api/v1*"}
	rbacNamespaces = []string{"n1", "n2"}
	rbacUsers      = []string{"u1", "u2", "system:serviceaccount:n1:robot", "system:serviceaccount:n2:robot", ""}
	rbacMembers    = []string{"g1", "g2", "system:authenticated"}
)

func someOf(r *rand.Rand, from []string, most int) []string {
	var out []string
	for range r.IntN(most + 1) {
		out = append(out, pick(r, from))
	}
	return out
}

func randomRules(r *rand.Rand) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range r.IntN(4) {
		rule := rbacv1.PolicyRule{Verbs: someOf(r, rbacVerbs, 2)}
		if r.IntN(4) == 0 {
			rule.NonResourceURLs = someOf(r, rbacPaths, 2)
		}
		if r.IntN(8) > 0 {
			rule.APIGroups, rule.Resources = someOf(r, rbacGroups, 2), someOf(r, rbacResources, 3)
			rule.ResourceNames = someOf(r, rbacNames, r.IntN(3))
		}
		rules = append(rules, rule)
	}
	return rules
}

func randomSubjects(r *rand.Rand) []rbacv1.Subject {
	var list []rbacv1.Subject
	for range 1 + r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			list = append(list, rbacv1.Subject{Kind: "Group", Name: pick(r, rbacMembers)})
		case 1:
			list = append(list, rbacv1.Subject{Kind: "ServiceAccount", Name: "robot",
				Namespace: pick(r, append([]string{""}, rbacNamespaces...))})
		default:
			list = append(list, rbacv1.Subject{Kind: pick(r, []string{"User", "User", "Robot"}), Name: pick(r, rbacUsers[:4])})
		}
	}
	return list
}

// randomPolicy makes roles and bindings, of which some refer to nothing, tells the index of some of them twice or in
// an earlier state, and lets some go again.
func randomPolicy(t *testing.T, r *rand.Rand) *rolePolicy {
	p := &rolePolicy{index: roles.New()}
	names := []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7"}
	for _, name := range names[:1+r.IntN(len(names)-1)] {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: randomRules(r)}
		p.clusterRoles = append(p.clusterRoles, role)
		tell(t, r, p.index, role, &rbacv1.ClusterRole{ObjectMeta: role.ObjectMeta, Rules: randomRules(r)}, &or.ClusterRole{},
			&or.ClusterRole{})
		for _, namespace := range rbacNamespaces {
			if r.IntN(2) == 0 {
				one := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: randomRules(r)}
				p.roles = append(p.roles, one)
				tell(t, r, p.index, one, &rbacv1.Role{ObjectMeta: one.ObjectMeta, Rules: randomRules(r)}, &or.Role{}, &or.Role{})
			}
		}
	}
	for i := range r.IntN(14) {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pick(r, names)}
		if r.IntN(2) == 0 {
			b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%02d", i)}, RoleRef: ref,
				Subjects: randomSubjects(r)}
			p.clusterBindings = append(p.clusterBindings, b)
			was := &rbacv1.ClusterRoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: ref, Subjects: randomSubjects(r)}
			tell(t, r, p.index, b, was, &or.ClusterRoleBinding{}, &or.ClusterRoleBinding{})
			continue
		}
		ref.Kind = pick(r, []string{"Role", "ClusterRole"})
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, rbacNamespaces),
			Name: fmt.Sprintf("b%02d", i)}, RoleRef: ref, Subjects: randomSubjects(r)}
		p.bindings = append(p.bindings, b)
		was := &rbacv1.RoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: ref, Subjects: randomSubjects(r)}
		tell(t, r, p.index, b, was, &or.RoleBinding{}, &or.RoleBinding{})
	}
	return p
}

// tell tells the index of an object: at once, or after it was another, or was deleted.
func tell[T object.Object](t *testing.T, r *rand.Rand, x *roles.Index, now, before upstream, is, was T) {
	is, was = mustOurs(t, now, is), mustOurs(t, before, was)
	switch r.IntN(4) {
	case 0:
		x.Changed(nil, was)
		x.Allows(&roles.Request{User: "u1", Groups: rbacMembers, Verb: "get", Resource: "pods", Namespace: "n1"})
		x.Changed(was, is)
	case 1:
		x.Changed(nil, is)
		x.Changed(is, nil)
		x.Changed(nil, is)
	default:
		x.Changed(nil, is)
	}
}

// What may be done under random roles and bindings is what Kubernetes' authorizer lets be done, for the same reason
// where one binding allows it.
//
// spec: OBJ-15
func TestRolesDecideAlike(t *testing.T) {
	r, bad, allowed := random(t), 0, 0
	for i := 0; i < *count/10 && bad < 10; i++ {
		p := randomPolicy(t, r)
		requests := make([]*roles.Request, 60)
		for i := range requests {
			q := &roles.Request{User: pick(r, rbacUsers), Groups: someOf(r, rbacMembers, 3), Verb: pick(r, rbacVerbs),
				Namespace: pick(r, append([]string{""}, rbacNamespaces...))}
			if r.IntN(4) > 0 {
				q.Group, q.Name = pick(r, rbacGroups), pick(r, rbacNames)
				q.Resource = pick(r, []string{"pods", "deployments", "*", "pods/log", "a", "a/b", "pods/"})
				q.Subresource = pick(r, []string{"", "", "log", "scale", "c", "b/c"})
			} else {
				q.Path = pick(r, []string{"/metrics", "/h", "/h/x", "/api/v1", "/api/v1/pods"})
			}
			requests[i] = q
		}
		allows := ask[[]bool](t, "rbac-decisions", p.roles, p.bindings, p.clusterRoles, p.clusterBindings, requests)
		for i, q := range requests {
			theirs := allows[i]
			ours := p.index.Allows(q)
			if ours != strings.HasPrefix(p.index.Reason(q), "RBAC: allowed by ") {
				t.Errorf("%+v: allowed is %t, the reason %q", q, ours, p.index.Reason(q))
				bad++
			}
			if theirs {
				allowed++
			}
			if ours != theirs {
				t.Errorf("%+v: %t by Monoplane, %t by Kubernetes\n%+v\n%+v", q, ours, theirs, p.clusterBindings, p.clusterRoles)
				bad++
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing was ever allowed")
	}
}

// Rights that one has not got are the same, and named in the same words.
//
// spec: OBJ-15
func TestRightsAreMissedAlike(t *testing.T) {
	r, missing := random(t), 0
	for range *count {
		held, wanted := randomRules(r), randomRules(r)
		if r.IntN(3) == 0 {
			held = append(held, wanted...)
		}
		lacks := ask[[]string](t, "rbac-missing-rights", held, wanted)
		ok := len(lacks) == 0
		ours, judged := roles.Missing(ourRules(t, held), ourRules(t, wanted))
		if !judged || ok != (len(ours) == 0) {
			t.Fatalf("%v of %v: %v by Monoplane, %v by Kubernetes", wanted, held, ours, lacks)
		}
		if ok {
			continue
		}
		missing++
		if theirs := strings.Join(lacks, "\n"); theirs != roles.Describe(ours) {
			t.Fatalf("%v of %v:\n%s by Monoplane,\n%s by Kubernetes", wanted, held, roles.Describe(ours), theirs)
		}
	}
	if missing == 0 {
		t.Error("nothing was ever missing")
	}
}

func ourRules(t *testing.T, rules []rbacv1.PolicyRule) []*or.PolicyRule {
	return mustOurs(t, &rbacv1.Role{Rules: rules}, &or.Role{}).Rules
}

// defaultRoles are those that there are without anybody having made them.
type defaultRoles struct {
	Roles    []rbacv1.ClusterRole
	Bindings []rbacv1.ClusterRoleBinding
}

// The default roles have the names and rules of Kubernetes', but for API groups that are not served.
//
// spec: OBJ-15
func TestDefaultRolesAreThoseOfKubernetes(t *testing.T) {
	theirs := map[string]*or.ClusterRole{}
	defaults := ask[defaultRoles](t, "rbac-default-roles")
	for _, role := range defaults.Roles {
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return len(rule.NonResourceURLs) == 0 && !slices.ContainsFunc(rule.APIGroups, func(g string) bool {
				return g != "extensions" && g != "resource.k8s.io" && g != "scheduling.k8s.io"
			})
		})
		theirs[role.Name] = mustOurs(t, &role, &or.ClusterRole{})
	}
	for _, role := range defaultroles.Roles() {
		name := role.Metadata.Name
		want := theirs[name]
		if want == nil {
			t.Errorf("%s is no default role of Kubernetes", name)
			continue
		}
		gives := func(which string, a, b []*or.PolicyRule) {
			if missing, _ := roles.Missing(a, b); len(missing) > 0 {
				t.Errorf("%s: only %s gives\n%s", name, which, roles.Describe(missing))
			}
		}
		gives("Kubernetes", role.Rules, want.Rules)
		gives("Monoplane", want.Rules, role.Rules)
		if !proto.Equal(role.AggregationRule, want.AggregationRule) ||
			!maps.Equal(role.Metadata.Labels, want.Metadata.Labels) ||
			!maps.Equal(role.Metadata.Annotations, want.Metadata.Annotations) {
			t.Errorf("%s: %v %v, want %v %v", name, role.AggregationRule, role.Metadata, want.AggregationRule, want.Metadata)
		}
	}
	bindings := map[string]*or.ClusterRoleBinding{}
	for _, b := range defaults.Bindings {
		bindings[b.Name] = mustOurs(t, &b, &or.ClusterRoleBinding{})
	}
	for _, b := range defaultroles.Bindings() {
		want := bindings[b.Metadata.Name]
		if want == nil || !proto.Equal(b.RoleRef, want.RoleRef) ||
			!slices.EqualFunc(b.Subjects, want.Subjects, func(x, y *or.Subject) bool { return proto.Equal(x, y) }) {
			t.Errorf("%v, want %v", b, want)
		}
	}
}
