package roles_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

func rule(verbs, groups, resources string, names ...string) *rbacv1.PolicyRule {
	r := &rbacv1.PolicyRule{Verbs: strings.Fields(verbs), Resources: strings.Fields(resources), ResourceNames: names}
	for g := range strings.SplitSeq(groups, " ") {
		r.ApiGroups = append(r.ApiGroups, g)
	}
	return r
}

func clusterRole(name string, rules ...*rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{Metadata: &metav1.ObjectMeta{Name: name}, Rules: rules}
}

func role(namespace, name string, rules ...*rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func everywhere(name, role string, subjects ...*rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: &rbacv1.RoleRef{Kind: "ClusterRole", Name: role}}
}

func inNamespace(namespace, name, kind, role string, subjects ...*rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects,
		RoleRef: &rbacv1.RoleRef{Kind: kind, Name: role}}
}

func user(name string) *rbacv1.Subject  { return &rbacv1.Subject{Kind: "User", Name: name} }
func group(name string) *rbacv1.Subject { return &rbacv1.Subject{Kind: "Group", Name: name} }
func account(namespace, name string) *rbacv1.Subject {
	return &rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
}

// ask writes a request as "user,group verb resource.group/subresource namespace name", "-" for what is empty.
func ask(line string) *roles.Request {
	f := strings.Fields(line)
	for i := range f {
		f[i] = strings.TrimPrefix(f[i], "-")
	}
	who := strings.Split(f[0], ",")
	r := &roles.Request{User: who[0], Groups: who[1:], Verb: f[1]}
	if strings.HasPrefix(f[2], "/") {
		r.Path = f[2]
		return r
	}
	r.Resource, r.Subresource, _ = strings.Cut(f[2], "/")
	r.Resource, r.Group, _ = strings.Cut(r.Resource, ".")
	r.Namespace = f[3]
	if len(f) > 4 {
		r.Name = f[4]
	}
	return r
}

// spec: OBJ-15
func TestAllows(t *testing.T) {
	x := roles.New()
	for _, o := range []object.Object{
		clusterRole("reader", rule("get list", "", "pods pods/log")),
		clusterRole("scaler", rule("update", "*", "*/scale")),
		clusterRole("root", rule("*", "*", "*"), &rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}),
		clusterRole("paths", &rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/h/*"}}),
		role("a", "one", rule("get", "apps", "deployments", "web", "db")),
		everywhere("1", "reader", group("readers")),
		everywhere("2", "root", user("root")),
		everywhere("3", "paths", user("prometheus")),
		everywhere("4", "none", user("prometheus"), user("jane")),
		inNamespace("a", "1", "ClusterRole", "reader", user("jane"), user("jane"), account("", "robot")),
		inNamespace("a", "2", "Role", "one", account("b", "robot")),
		inNamespace("a", "3", "ClusterRole", "scaler", user("jane")),
		inNamespace("b", "1", "Role", "one", user("jane")), // that is a role of another namespace
	} {
		x.Changed(nil, o)
	}
	for line, want := range map[string]bool{
		"jane get pods a p":                                        true,
		"jane get pods/log a p":                                    true,
		"jane get pods/exec a p":                                   false,
		"jane get pods b p":                                        false,
		"jane list pods -":                                         false,
		"jane delete pods a p":                                     false,
		"jane get pods.metrics.k8s.io a p":                         false,
		"jane update deployments.apps/scale a web":                 true,
		"jane update deployments.apps a web":                       false,
		"jane get deployments.apps b web":                          false,
		"bob,x,readers list pods -":                                true,
		"readers list pods -":                                      false,
		"system:serviceaccount:a:robot get pods a":                 true,
		"system:serviceaccount:b:robot get pods a":                 false,
		"system:serviceaccount:b:robot get deployments.apps a w":   false,
		"system:serviceaccount:b:robot get deployments.apps a web": true,
		"system:serviceaccount:b:robot list deployments.apps a":    false,
		"root impersonate users - x":                               true,
		"root get /anything":                                       true,
		"prometheus get /metrics":                                  true,
		"prometheus get /metrics/x":                                false,
		"prometheus get /h/x":                                      true,
		"prometheus post /metrics":                                 false,
		"- get pods a":                                             false,
	} {
		if got := x.Allows(ask(line)); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
	for line, want := range map[string]string{
		"jane get pods a p":      `RBAC: allowed by RoleBinding "1/a" of ClusterRole "reader" to User "jane"`,
		"bob,readers get pods a": `RBAC: allowed by ClusterRoleBinding "1" of ClusterRole "reader" to Group "readers"`,
		"jane get pods -":        `RBAC: clusterrole.rbac.authorization.k8s.io "none" not found`,
		"jane get pods b": `RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, ` +
			`role.rbac.authorization.k8s.io "one" not found]`,
		"system:serviceaccount:a:robot get pods a": `RBAC: allowed by RoleBinding "1/a" of ClusterRole "reader" ` +
			`to ServiceAccount "robot/a"`,
		"nobody get pods b": "",
	} {
		if got := x.Reason(ask(line)); got != want {
			t.Errorf("%s: because %q", line, got)
		}
	}
}

// What is taken away is gone with the call that says so, whichever of the objects goes.
//
// spec: OBJ-15
func TestRightsEndWithTheirObjects(t *testing.T) {
	x := roles.New()
	reader, bound := clusterRole("reader", rule("get", "", "pods")), everywhere("1", "reader", user("jane"), user("jane"))
	says := func(when string, want bool) {
		t.Helper()
		if got := x.Allows(ask("jane get pods a")); got != want {
			t.Errorf("%s: %t", when, got)
		}
	}
	x.Changed(nil, bound)
	says("bound to what is not there", false)
	x.Changed(nil, reader)
	says("the role was made", true)
	x.Changed(reader, clusterRole("reader", rule("get", "", "nodes")))
	says("the role has other rules", false)
	x.Changed(nil, reader)
	says("the role is what it was", true)
	x.Changed(bound, everywhere("1", "reader", user("bob")))
	says("bound to somebody else", false)
	x.Changed(nil, bound)
	says("bound again", true)
	x.Changed(bound, nil)
	says("the binding is gone", false)
	x.Changed(nil, bound)
	x.Changed(reader, nil)
	says("the role is gone", false)
	x.Changed(bound, nil)
	if rules, missing := x.RulesOf(ask("jane get pods a")); len(rules)+len(missing) > 0 {
		t.Errorf("what is left: %v %v", rules, missing)
	}
}

// A rule whose verbs, groups and resources multiply to a great many counts as any other, and takes no more memory than
// it is long.
func TestLargeRules(t *testing.T) {
	large := func(n int) *rbacv1.PolicyRule {
		r := &rbacv1.PolicyRule{ResourceNames: []string{"a"}}
		for i := range n {
			r.Verbs = append(r.Verbs, fmt.Sprint("v", i))
			r.ApiGroups = append(r.ApiGroups, fmt.Sprint("g", i))
			r.Resources = append(r.Resources, fmt.Sprint("r", i, "/s"))
		}
		return r
	}
	const many = 3000
	x := roles.New()
	x.Changed(nil, clusterRole("large", large(many)))
	x.Changed(nil, everywhere("1", "large", user("jane")))
	for line, want := range map[string]bool{
		"jane v7 r2999.g0/s - a": true, "jane v7 r2999.g0/s - b": false, "jane v7 r2999.g0 - a": false,
		"jane v3000 r2.g0/s - a": false,
	} {
		if got := x.Allows(ask(line)); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
	if missing, ok := roles.Missing(nil, []*rbacv1.PolicyRule{large(many)}); ok {
		t.Errorf("%d rights were judged one by one", len(missing))
	}
	if missing, ok := roles.Missing([]*rbacv1.PolicyRule{large(many)}, []*rbacv1.PolicyRule{large(many)}); !ok ||
		len(missing) > 0 {
		t.Errorf("who has the rule misses %v, %t", missing, ok)
	}
}

func TestMissing(t *testing.T) {
	held := []*rbacv1.PolicyRule{
		rule("get list", "", "pods"), rule("*", "apps", "deployments", "web"), rule("update", "*", "*/scale"),
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/h/*"}},
	}
	for _, x := range []struct {
		wanted *rbacv1.PolicyRule
		want   string
	}{
		{rule("get", "", "pods"), ""},
		{rule("get", "", "pods", "a"), ""},
		{rule("get delete watch", "", "pods"), `{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}`},
		{rule("get", "apps", "deployments", "web"), ""},
		{rule("get", "apps", "deployments"), `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`},
		{rule("get", "apps", "deployments", "db"),
			`{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["db"], Verbs:["get"]}`},
		{rule("update", "x", "y/scale"), ""},
		{rule("update", "x", "*"), `{APIGroups:["x"], Resources:["*"], Verbs:["update"]}`},
		{&rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/h/a/*"}}, ""},
		{&rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/h"}},
			`{NonResourceURLs:["/h"], Verbs:["get"]}`},
	} {
		missing, ok := roles.Missing(held, []*rbacv1.PolicyRule{x.wanted})
		if got := roles.Describe(missing); !ok || got != x.want {
			t.Errorf("%v: %s", x.wanted, got)
		}
	}
}

// crowd returns an index with n roles and bindings: every one of them gives alice something, and others too.
func crowd(n int) *roles.Index {
	x := roles.New()
	for i := range n {
		name := fmt.Sprint("r", i)
		x.Changed(nil, clusterRole(name, rule("get list watch", "apps", fmt.Sprint("deployments kind", i)),
			rule("get", "", "pods", fmt.Sprint("pod", i))))
		x.Changed(nil, everywhere(fmt.Sprint("c", i), name, user("alice"), user(fmt.Sprint("u", i))))
		x.Changed(nil, inNamespace(fmt.Sprint("ns", i), "b", "ClusterRole", name, group("developers"),
			account("", "default")))
	}
	x.Changed(nil, clusterRole("system:basic-user", rule("create", "authentication.k8s.io", "selfsubjectreviews")))
	x.Changed(nil, everywhere("basic", "system:basic-user", group("system:authenticated")))
	return x
}

var asked = map[string]string{
	"a service account of a namespace": "system:serviceaccount:ns7:default,system:serviceaccounts,system:authenticated " +
		"list deployments.apps ns7",
	"the first of many groups":     "bob,developers,system:authenticated get pods ns3 pod3",
	"somebody with a thousand":     "alice,system:authenticated get pods ns3 pod999",
	"somebody without that right":  "alice,developers,system:authenticated delete pods ns3 pod999",
	"somebody without any binding": "eve,system:authenticated get pods ns3 pod999",
}

func TestDecisionsAllocateNothing(t *testing.T) {
	x := crowd(1000)
	for name, line := range asked {
		r := ask(line)
		if n := testing.AllocsPerRun(100, func() { x.Allows(r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// What is worked out when something changes is not left to who asks next: the first decision after it is like any
// other.
func TestTheFirstDecisionAllocatesNothing(t *testing.T) {
	x := crowd(1000)
	bound := everywhere("more", "r5", user("alice"), user("bob"), group("developers"), group("system:authenticated"))
	of := clusterRole("r5", rule("get list watch", "apps", "deployments"))
	for name, line := range asked {
		r, first := ask(line), uint64(0)
		for _, o := range []object.Object{bound, of, bound, of} {
			x.Changed(nil, o)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x.Allows(r)
			runtime.ReadMemStats(&after)
			first = max(first, after.Mallocs-before.Mallocs)
		}
		// What the runtime itself allocates beside it is a few objects at most.
		if first > 50 {
			t.Errorf("%s: %d allocations", name, first)
		}
	}
}

// BenchmarkFirst says what the first decision costs after a change of what the user may do.
func BenchmarkFirst(b *testing.B) {
	x := crowd(1000)
	bound := everywhere("more", "r5", user("alice"), user("bob"), group("developers"), group("system:authenticated"))
	for name, line := range asked {
		b.Run(name, func(b *testing.B) {
			r := ask(line)
			for b.Loop() {
				b.StopTimer()
				x.Changed(nil, bound)
				b.StartTimer()
				x.Allows(r)
			}
		})
	}
}

// BenchmarkAllows says what a decision costs among a thousand bindings, beside a look-up in a map of as many strings.
func BenchmarkAllows(b *testing.B) {
	x := crowd(1000)
	lookups := make(map[string]int, 1000)
	for i := range 1000 {
		lookups[fmt.Sprint("c", i)] = i
	}
	b.Run("a look-up in a map", func(b *testing.B) {
		for b.Loop() {
			if _, ok := lookups["c999"]; !ok {
				b.Fatal("it is gone")
			}
		}
	})
	for name, line := range asked {
		b.Run(name, func(b *testing.B) {
			r := ask(line)
			b.ReportAllocs()
			for b.Loop() {
				x.Allows(r)
			}
		})
	}
}
