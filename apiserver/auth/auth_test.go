package auth

import (
	"strings"
	"testing"

	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/controllers"
	"monoplane.dev/rules/rights"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

func controllerNamed(name string) Identity {
	return Of(&authn.User{Name: authn.ControllerPrefix + name})
}

// spec: OBJ-15
func TestOf(t *testing.T) {
	for _, x := range []struct {
		name      string
		groups    []string
		want      Class
		component bool
	}{
		{"", nil, Anonymous, false},
		{authn.AnonymousName, []string{authn.AdminsGroup}, Anonymous, false},
		{"jane", nil, User, false},
		{"jane", []string{authn.AuthenticatedGroup, authn.AdminsGroup, authn.MonitoringGroup}, Admin, false},
		{"jane", []string{authn.MonitoringGroup}, Monitoring, false},
		{"jane", []string{authn.NodesGroup}, User, false},
		{"system:node:n1", []string{authn.NodesGroup}, Node, true},
		{"system:node:n1", nil, User, false},
		{"system:node:n1", []string{authn.AdminsGroup}, User, false},
		{"system:node:", []string{authn.NodesGroup}, User, false},
		{"system:nodes:n1", []string{authn.NodesGroup}, User, false},
		{authn.SchedulerName, []string{authn.AdminsGroup}, Scheduler, true},
		{authn.SchedulerName + "2", nil, User, false},
		{"system:controller:podgc", []string{authn.AdminsGroup}, Controller, true},
		{"system:controller:x", nil, Controller, true},
		{"system:controller:", []string{authn.AdminsGroup}, User, false},
	} {
		id := Of(&authn.User{Name: x.name, Groups: x.groups, UID: "key"})
		if id.Class != x.want || id.Component() != x.component {
			t.Errorf("%q in %q is %d, a component: %t; want %d, %t", x.name, x.groups, id.Class, id.Component(), x.want,
				x.component)
		}
		if isNode := x.want == Node; (id.Node == "n1") != isNode || (id.Key == "key") != isNode {
			t.Errorf("%q in %q is the node %q with key %q", x.name, x.groups, id.Node, id.Key)
		}
	}
	if id := Of(nil); id.Class != Anonymous || id.Name != authn.AnonymousName {
		t.Errorf("nobody is %v", id)
	}
}

// A controller has what it declares and what every component has; one that nobody has declared may look at most
// things.
func TestControllersHaveWhatTheyDeclare(t *testing.T) {
	z := NewAuthorizer([]rights.Role{{Name: "known", Grants: []rights.Grant{{Verbs: "get delete",
		Resources: "pods nodes/status"}}}}, nil)
	known, other := controllerNamed("known"), controllerNamed("known2")
	for _, x := range []struct {
		a            Attributes
		known, other bool
	}{
		{Attributes{Verb: "get", Resource: "pods", Namespaced: true}, true, true},
		{Attributes{Verb: "delete", Resource: "pods", Namespaced: true}, true, true},
		{Attributes{Verb: "list", Resource: "pods", Namespaced: true}, false, true},
		{Attributes{Verb: "get", Resource: "nodes/status"}, false, false},
		{Attributes{Verb: "get", Resource: "nodes", Subresource: "status"}, true, false},
		{Attributes{Verb: "update", Resource: "nodes", Subresource: "status"}, false, true},
		{Attributes{Verb: "watch", Resource: "configmaps", Namespaced: true}, false, true},
		{Attributes{Verb: "watch", Resource: "priorityclasses"}, true, true},
		{Attributes{Verb: "create", Resource: "events", Namespaced: true}, true, true},
		{Attributes{Verb: "get", Resource: "pods", Subresource: "log", Namespaced: true}, false, false},
		{Attributes{Verb: "get", Path: MetricsPath}, false, false},
	} {
		for id, want := range map[Identity]bool{known: x.known, other: x.other} {
			err := z.Authorize(id, x.a)
			if (err == nil) != want || err != nil && !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%s, %+v: %v, allowed is %t", id.Name, x.a, err, want)
			}
		}
	}
}

// What an agent serves is open to those who may use nodes/proxy, and each part to those who have the right to it, by
// the path that is meant and not by the one that is written.
//
// spec: OBJ-15
func TestNodePathsAreGrantedByPart(t *testing.T) {
	z := NewAuthorizer([]rights.Role{{Name: "all", Grants: []rights.Grant{{Verbs: "get", Resources: "nodes/proxy"}}},
		{Name: "some", Grants: []rights.Grant{{Verbs: "get", Resources: "nodes/pods nodes/healthz"}}}}, nil)
	for path, who := range map[string]string{
		"stats/summary": "monitoring all", "/stats/summary?only_cpu_and_memory=true": "monitoring all",
		"metrics": "monitoring all", "metrics/resource": "monitoring all", "stats/../metrics": "monitoring all",
		"stats/../pods": "some all", "metrics/../../pods?stats": "some all", "pods": "some all", "pods/": "some all",
		"healthz": "some all", "": "all", "/": "all", "statsx": "all", "exec/ns/p/c": "all", "?stats": "all",
	} {
		for name, id := range map[string]Identity{
			"all": controllerNamed("all"), "some": controllerNamed("some"), "other": controllerNamed("other"),
			"monitoring": Of(&authn.User{Name: "m", Groups: []string{authn.MonitoringGroup}}),
			"node":       Of(&authn.User{Name: authn.NodePrefix + "n", Groups: []string{authn.NodesGroup}}),
			"anonymous":  Of(nil),
		} {
			a := Attributes{Verb: "get", Resource: "nodes", Subresource: "proxy", Name: "n"}
			err := z.AuthorizeNodePath(id, a, path)
			if want := strings.Contains(" "+who+" ", " "+name+" "); (err == nil) != want {
				t.Errorf("%s, %q: %v, allowed is %t", name, path, err, want)
			}
		}
	}
}

// spec: OBJ-15
func TestSecretsAreGrantedByName(t *testing.T) {
	z := NewAuthorizer(controllers.Roles(), nil)
	identities := map[string]Identity{
		"admin":     Of(&authn.User{Name: "root", Groups: []string{authn.AdminsGroup}}),
		"namespace": controllerNamed("namespace"),
		"unknown":   controllerNamed("x"),
		"scheduler": Of(&authn.User{Name: authn.SchedulerName}),
	}
	for _, c := range controllers.Roles() {
		identities[c.Name] = controllerNamed(c.Name)
	}
	may := map[string]string{"admin": "get list watch create update patch delete deletecollection",
		"namespace": "list delete deletecollection",
		// It is shown their owners, not what is in them (apiserver TestSecretsAreForAdministrators).
		"garbage-collector": "get list watch patch delete",
		// It is shown that they are there.
		"resourcequota-controller": "list watch",
		// It is shown certificates and their keys.
		"ingress": "list watch",
		// It is shown those with tokens, and changes no others (apiserver TestSecretsForTokens).
		"serviceaccount-token": "list watch update delete"}
	for name, id := range identities {
		for verb := range strings.FieldsSeq(may["admin"]) {
			err := z.Authorize(id, Attributes{Verb: verb, Resource: "secrets", Namespaced: true, Namespace: "ns"})
			if allowed := strings.Contains(" "+may[name]+" ", " "+verb+" "); (err == nil) != allowed {
				t.Errorf("%s, %s secrets: %v, allowed is %t", name, verb, err, allowed)
			}
		}
	}
}

// spec: DEL-8
func TestOnlyPodGCCollects(t *testing.T) {
	z := NewAuthorizer(controllers.Roles(), nil)
	for _, u := range []*authn.User{
		nil, {Name: "jane"}, {Name: "root", Groups: []string{authn.AdminsGroup}}, {Name: authn.SchedulerName},
		{Name: authn.NodePrefix + "podgc", Groups: []string{authn.NodesGroup}}, {Name: authn.ControllerPrefix + "x"},
		{Name: authn.ControllerPrefix + "namespace"}, {Name: "podgc"},
	} {
		if z.Collects(Of(u)) {
			t.Errorf("%v may collect pods", u)
		}
	}
	if !z.Collects(controllerNamed("podgc")) {
		t.Error("PodGC may not")
	}
	if NewAuthorizer(nil, nil).Collects(controllerNamed("podgc")) {
		t.Error("a controller may collect pods without having declared it")
	}
}

// What the table and the controllers name is there: a grant of what is misspelled would be none.
func TestGrantsNameWhatIsServed(t *testing.T) {
	served := map[right]bool{
		{rights.Collect, "pods", ""}:           true,
		{rights.ShowTLS, "secrets", ""}:        true,
		{rights.ShowTokens, "secrets", ""}:     true,
		{"get", MetricsPath, ""}:               true,
		{"get", ReflectionPath, ""}:            true,
		{"get", "nodes", "stats"}:              true, // of what is behind nodes/proxy
		{"get", "nodes", "metrics"}:            true,
		{"listen", "nodestreams", ""}:          true,
		{"answer", "nodestreams", ""}:          true,
		{"listen", "schedulerstreams", ""}:     true,
		{"answer", "schedulerstreams", ""}:     true,
		{"create", "pods", "binding"}:          true,
		{"create", "serviceaccounts", "token"}: true,
		{"update", "namespaces", "finalize"}:   true,
		{"escalate", "clusterroles", ""}:       true, // of roles with more rights than one has
		{"bind", "clusterroles", ""}:           true,
		{"sign", "signers", ""}:                true, // by the name of the signer, which is no object
	}
	for _, s := range services.All() {
		for _, m := range s.Methods() {
			m = strings.ToLower(m)
			served[right{m, s.Kind.Plural, ""}] = true
			if s.Kind.Namespaced {
				served[right{m, rights.All, ""}] = true
				served[right{m, rights.Secrets, ""}] = true // whether they are served or not
			}
			for _, verb := range []string{"update", "patch", "get"} {
				if sub, ok := strings.CutPrefix(m, verb); ok {
					served[right{verb, s.Kind.Plural, sub}] = true
				}
			}
		}
	}
	check := func(who string, grants []rights.Grant) {
		for r := range setOf(grants...) {
			if !served[r] {
				t.Errorf("%s: %+v is not served", who, r)
			}
		}
	}
	for class := range table {
		check(table[class].name+table[class].prefix+table[class].group, table[class].grants)
	}
	check("every component", components)
	check("everybody", everybody)
	for _, c := range controllers.Roles() {
		check(c.Name, c.Grants)
	}
}

var requests = []struct {
	name string
	user authn.User
	a    Attributes
}{
	{"an administrator creates a pod", authn.User{Name: "a", Groups: []string{authn.AuthenticatedGroup,
		authn.AdminsGroup}},
		Attributes{Verb: "create", Resource: "pods", Namespaced: true}},
	{"the scheduler binds", authn.User{Name: authn.SchedulerName},
		Attributes{Verb: "create", Resource: "pods", Subresource: "binding", Namespaced: true}},
	{"an agent writes a status", authn.User{Name: "system:node:n1", Groups: []string{authn.NodesGroup}},
		Attributes{Verb: "update", Resource: "pods", Subresource: "status", Namespaced: true}},
	{"a controller deletes a pod", authn.User{Name: "system:controller:podgc"},
		Attributes{Verb: "delete", Resource: "pods", Namespaced: true}},
	{"an unknown controller lists claims", authn.User{Name: "system:controller:x"},
		Attributes{Verb: "list", Resource: "persistentvolumeclaims", Namespaced: true}},
}

func TestAuthorizeAllocatesNothing(t *testing.T) {
	z := NewAuthorizer(controllers.Roles(), nil)
	for _, x := range requests {
		if n := testing.AllocsPerRun(100, func() { _ = z.Authorize(Of(&x.user), x.a) }); n != 0 {
			t.Errorf("%s: %v allocations", x.name, n)
		}
	}
}

// policy gives a user, a service account's group, an agent, the scheduler and two controllers the same role.
func policy(subjects ...*rbacv1.Subject) *roles.Index {
	x := roles.New()
	x.Changed(nil, &rbacv1.ClusterRole{Metadata: &metav1.ObjectMeta{Name: "all"}, Rules: []*rbacv1.PolicyRule{
		{Verbs: []string{"*"}, ApiGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
	}})
	x.Changed(nil, &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: "all"}, Subjects: subjects,
		RoleRef: &rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}})
	return x
}

// Roles give rights to users and to programs of somebody else, and never to the parts of the control plane.
//
// spec: OBJ-15, DEL-8
func TestRolesAddNothingToComponents(t *testing.T) {
	z := NewAuthorizer(controllers.Roles(), policy(&rbacv1.Subject{Kind: "Group", Name: authn.AuthenticatedGroup}))
	everybody := []string{authn.AuthenticatedGroup}
	for name, want := range map[string]bool{
		"jane": true, "system:serviceaccount:a:b": true, "system:controller:somebodys": true,
		"system:controller:podgc": false, "system:node:n1": false, authn.SchedulerName: false,
	} {
		id := Of(&authn.User{Name: name, Groups: append([]string{authn.NodesGroup}, everybody...)})
		for _, a := range []Attributes{
			{Verb: "create", Resource: "secrets", Namespaced: true, Namespace: "a"},
			{Verb: "get", Path: MetricsPath},
			{Verb: "list", Group: "batch", Resource: "cronjobs", Namespaced: true},
		} {
			if err := z.Authorize(id, a); (err == nil) != want {
				t.Errorf("%s, %+v: %v", name, a, err)
			}
		}
		if z.Collects(id) != (name == "system:controller:podgc") {
			t.Errorf("%s may collect pods: %t", name, z.Collects(id))
		}
	}
	node := Of(&authn.User{Name: "system:node:n1", Groups: append(everybody, authn.NodesGroup)})
	if err := z.Authorize(node, Attributes{Verb: "list", Resource: "pods", Namespaced: true}); err == nil {
		t.Error("a role lets an agent list the pods of all nodes")
	}
}

// What is refused is refused in the words that clients know, with the roles that are bound and do not exist.
//
// spec: OBJ-15
func TestRefusals(t *testing.T) {
	x := roles.New()
	x.Changed(nil, &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: "b"},
		Subjects: []*rbacv1.Subject{{Kind: "User", Name: "jane"}},
		RoleRef:  &rbacv1.RoleRef{Kind: "ClusterRole", Name: "none"}})
	z := NewAuthorizer(nil, x)
	for _, c := range []struct {
		user string
		a    Attributes
		want string
	}{
		{"x", Attributes{Verb: "list", Resource: "pods", Namespaced: true, Namespace: "default"},
			`pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default"`},
		{"system:serviceaccount:a:b", Attributes{Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale",
			Namespaced: true, Namespace: "a", Name: "w"},
			`deployments.apps "w" is forbidden: User "system:serviceaccount:a:b" cannot get resource "deployments/scale" ` +
				`in API group "apps" in the namespace "a"`},
		{"jane", Attributes{Verb: "list", Resource: "nodes"},
			`nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope: ` +
				`RBAC: clusterrole.rbac.authorization.k8s.io "none" not found`},
		{"x", Attributes{Verb: "get", Path: "/metrics"}, `forbidden: User "x" cannot get path "/metrics"`},
	} {
		err := z.Authorize(Of(&authn.User{Name: c.user}), c.a)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v\nwant %s", err, c.want)
			continue
		}
		if d := apierrors.From(err).Status().GetDetails(); c.a.Path == "" &&
			(d.GetKind() != c.a.Resource || d.GetGroup() != c.a.Group || d.GetName() != c.a.Name) {
			t.Errorf("%v has the details %v", err, d)
		}
	}
}

// A list of one object, by a field selector, is about its name.
func TestListsOfOneObject(t *testing.T) {
	x := roles.New()
	x.Changed(nil, &rbacv1.Role{Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "r"}, Rules: []*rbacv1.PolicyRule{
		{Verbs: []string{"list"}, ApiGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"c"}},
	}})
	x.Changed(nil, &rbacv1.RoleBinding{Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "b"},
		Subjects: []*rbacv1.Subject{{Kind: "User", Name: "jane"}}, RoleRef: &rbacv1.RoleRef{Kind: "Role", Name: "r"}})
	z := NewAuthorizer(nil, x)
	for selector, want := range map[string]bool{"metadata.name=c": true, "": false, "metadata.name=d": false} {
		err := z.Authorize(Of(&authn.User{Name: "jane"}), Attributes{Verb: "list", Resource: "configmaps", Namespaced: true,
			Namespace: "a", FieldSelector: selector})
		if (err == nil) != want {
			t.Errorf("%q: %v", selector, err)
		}
	}
}

func TestRolesAllocateNothing(t *testing.T) {
	z := NewAuthorizer(controllers.Roles(), policy(&rbacv1.Subject{Kind: "User", Name: "jane"}))
	u := &authn.User{Name: "jane", Groups: []string{"developers", authn.AuthenticatedGroup}}
	a := Attributes{
		Verb: "create", Resource: "pods", Subresource: "eviction", Namespaced: true, Namespace: "a", Name: "p",
	}
	if n := testing.AllocsPerRun(100, func() { _ = z.Authorize(Of(u), a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	z := NewAuthorizer(controllers.Roles(), nil)
	for _, x := range requests {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := z.Authorize(Of(&x.user), x.a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
