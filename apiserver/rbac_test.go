package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"

	authorizationv1 "monoplane.dev/api/authorization/v1"
	authorizationv1rpc "monoplane.dev/api/authorization/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
)

// grant makes a ClusterRole with one rule, and gives it to somebody, in a namespace or, when that is empty,
// everywhere.
func (c *cluster) grant(name, namespace string, rule *rbacv1.PolicyRule, to ...*rbacv1.Subject) {
	c.t.Helper()
	must(c.admin().ClusterRoles.Create(ctx(c.t), &rbacv1rpc.CreateClusterRoleRequest{Object: &rbacv1.ClusterRole{
		Metadata: &metav1.ObjectMeta{Name: name}, Rules: []*rbacv1.PolicyRule{rule},
	}}))(c.t)
	ref := &rbacv1.RoleRef{Kind: "ClusterRole", Name: name}
	if namespace == "" {
		must(c.admin().ClusterRoleBindings.Create(ctx(c.t), &rbacv1rpc.CreateClusterRoleBindingRequest{
			Object: &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: name}, Subjects: to, RoleRef: ref},
		}))(c.t)
		return
	}
	must(c.admin().RoleBindings.Create(ctx(c.t), &rbacv1rpc.CreateRoleBindingRequest{Object: &rbacv1.RoleBinding{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: namespace}, Subjects: to, RoleRef: ref,
	}}))(c.t)
}

func rule(verbs, groups, resources string) *rbacv1.PolicyRule {
	return &rbacv1.PolicyRule{
		Verbs: strings.Fields(verbs), ApiGroups: strings.Split(groups, " "), Resources: strings.Fields(resources),
	}
}

func person(name string) *rbacv1.Subject { return &rbacv1.Subject{Kind: "User", Name: name} }

// Who may patch objects, and not create them, makes none by applying what is not there.
//
// spec: OBJ-9, OBJ-15
func TestApplyNeedsTheRightToCreate(t *testing.T) {
	c := start(t)
	jane := c.as(&authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}})
	c.grant("patcher", "default", rule("patch", "", "configmaps"), person("jane"))
	apply := func() error {
		_, err := jane.ConfigMaps.Patch(ctx(t), &metav1.PatchRequest{
			Namespace: "default", Name: "made", FieldManager: "jane", PatchType: "application/apply-patch+yaml",
			Patch: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"},"data":{"a":"b"}}`),
		})
		return err
	}
	if err := apply(); !apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), "cannot create") {
		t.Errorf("without the right to create: %v", err)
	}
	c.grant("creator", "default", rule("create", "", "configmaps"), person("jane"))
	if err := apply(); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// A right counts from the answer to the write that gave it on, on every server that the client asks, and a user who
// may read secrets sees what is in them.
//
// spec: OBJ-15
func TestRolesGiveRights(t *testing.T) {
	c := start(t)
	must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{
		Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"k": []byte("v")},
	}}))(t)
	jane := c.as(&authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}})
	list := func() error {
		_, err := jane.Pods.List(ctx(t), &metav1.ListRequest{Namespace: "default"})
		return err
	}
	if err := list(); !apierrors.Is(err, apierrors.Forbidden) {
		t.Fatalf("without a role: %v", err)
	}
	c.grant("reader", "default", rule("get list", "", "pods secrets namespaces"), person("jane"))
	if err := list(); err != nil {
		t.Errorf("with a role: %v", err)
	}
	if s, err := jane.Secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"}); err != nil ||
		string(s.GetData()["k"]) != "v" {
		t.Errorf("a secret: %v %v", s, err)
	}
	if _, err := jane.Namespaces.Get(ctx(t), &metav1.GetRequest{Name: "default"}); err != nil {
		t.Errorf("the namespace itself: %v", err)
	}
	if _, err := jane.Namespaces.Get(ctx(t), &metav1.GetRequest{Name: "kube-system"}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := jane.Pods.List(ctx(t), &metav1.ListRequest{}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("all namespaces: %v", err)
	}
	if _, err := c.admin().RoleBindings.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default",
		Name: "reader"}); err != nil {
		t.Fatal(err)
	}
	if err := list(); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("when the binding is gone: %v", err)
	}
}

// Whatever role somebody gives them: an agent touches no pod of another node, and a controller forces no deletion.
//
// spec: DEL-8, OBJ-15
func TestNoRoleIsAboveTheRulesOfPods(t *testing.T) {
	c := start(t)
	c.grant("all", "", rule("*", "*", "*"), &rbacv1.Subject{Kind: "Group", Name: authn.NodesGroup},
		person("system:controller:podgc"), person("system:controller:somebodys"), person(authn.NodePrefix+"n2"))
	c.register("n1")
	c.register("n2")
	p := c.boundPod("p", "n1")
	if _, err := setPhase(t, c.agent("n2"), p, "Failed"); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("another node's agent writes the status: %v", err)
	}
	if _, err := deletePod(t, c.agent("n2"), p, ptr(int64(0)), true); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("another node's agent confirms: %v", err)
	}
	if _, err := c.agent("n2").Pods.List(ctx(t), &metav1.ListRequest{}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("another node's agent lists all pods: %v", err)
	}
	for _, name := range []string{"somebodys", "podgc"} {
		if _, err := deletePod(t, c.controller(name), p, ptr(int64(0)), true); err == nil {
			if live, err := c.getPod("p"); err != nil || live.Metadata.GetDeletionGracePeriodSeconds() == 0 {
				t.Errorf("controller %s has forced the deletion: %v, %v", name, live, err)
			}
		}
	}
	if _, err := c.getPod("p"); err != nil {
		t.Errorf("the pod of a living node: %v", err)
	}
}

// Nobody gives, to others or to himself, what he has not got: neither by a role nor by a binding.
//
// spec: OBJ-15
func TestRightsThatOneHasNotGotCannotBeGiven(t *testing.T) {
	c := start(t)
	rbac := "rbac.authorization.k8s.io"
	c.grant("manager", "default", rule("get create update", rbac, "roles rolebindings"), person("jane"))
	c.grant("reader", "default", rule("get list", "", "pods"), person("jane"))
	c.grant("root", "", rule("*", "*", "*"), person("admin"))
	jane := c.as(&authn.User{Name: "jane", Groups: []string{"g", authn.AuthenticatedGroup}})
	newRole := func(name string, rules ...*rbacv1.PolicyRule) error {
		_, err := jane.Roles.Create(ctx(t), &rbacv1rpc.CreateRoleRequest{Namespace: "default", Object: &rbacv1.Role{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Rules: rules}})
		return err
	}
	bind := func(name, kind, role string) error {
		_, err := jane.RoleBindings.Create(ctx(t), &rbacv1rpc.CreateRoleBindingRequest{Namespace: "default",
			Object: &rbacv1.RoleBinding{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
				Subjects: []*rbacv1.Subject{person("jane")}, RoleRef: &rbacv1.RoleRef{Kind: kind, Name: role}}})
		return err
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if !apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := newRole("a", rule("get", "", "pods")); err != nil {
		t.Errorf("a role with what she has: %v", err)
	}
	refused("a role with more", newRole("b", rule("get delete", "", "pods")),
		`roles.rbac.authorization.k8s.io "b" is forbidden: user "jane" (groups=["g" "system:authenticated"]) is `+
			"attempting to grant RBAC permissions not currently held:\n"+
			`{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}`)
	_, err := jane.Roles.Update(ctx(t), &rbacv1rpc.UpdateRoleRequest{Namespace: "default", Object: &rbacv1.Role{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"}, Rules: []*rbacv1.PolicyRule{rule("*", "*", "*")}}})
	refused("a role that gets more", err, `{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
	if err := bind("a", "ClusterRole", "reader"); err != nil {
		t.Errorf("a binding to what she has: %v", err)
	}
	refused("a binding to more", bind("b", "ClusterRole", "root"), "RBAC permissions not currently held")
	if err := bind("c", "ClusterRole", "none"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("a binding to nothing: %v", err)
	}
	c.grant("binder", "default", &rbacv1.PolicyRule{Verbs: []string{"bind"}, ApiGroups: []string{rbac},
		Resources: []string{"clusterroles"}, ResourceNames: []string{"root"}}, person("jane"))
	if err := bind("d", "ClusterRole", "root"); err != nil {
		t.Errorf("with the verb bind: %v", err)
	}
	if err := newRole("e", rule("*", "*", "*")); err != nil {
		t.Errorf("with all rights: %v", err)
	}
	admin := c.as(&authn.User{Name: "admin", Groups: []string{authn.AuthenticatedGroup}})
	aggregate := &rbacv1.ClusterRole{Metadata: &metav1.ObjectMeta{Name: "sum"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}}
	_, err = admin.ClusterRoles.Create(ctx(t), &rbacv1rpc.CreateClusterRoleRequest{Object: aggregate})
	if err != nil {
		t.Errorf("who has the verb escalate aggregates: %v", err)
	}
	c.grant("writer", "", rule("create update", rbac, "clusterroles"), person("bob"))
	bob := c.as(&authn.User{Name: "bob"})
	aggregate.Metadata = &metav1.ObjectMeta{Name: "sum2"}
	_, err = bob.ClusterRoles.Create(ctx(t), &rbacv1rpc.CreateClusterRoleRequest{Object: aggregate})
	refused("aggregation", err, "must have cluster-admin privileges to use the aggregationRule")
}

// spec: OBJ-15
func TestAccessReviews(t *testing.T) {
	c := start(t)
	c.grant("reader", "default", rule("get list", "", "pods"), person("jane"),
		&rbacv1.Subject{Kind: "Group", Name: "readers"})
	jane := c.as(&authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}})
	asks := func(namespace, verb string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "pods"}
	}
	self, err := jane.SelfSubjectAccessReviews.Create(ctx(t), &authorizationv1rpc.CreateSelfSubjectAccessReviewRequest{
		Object: &authorizationv1.SelfSubjectAccessReview{Metadata: &metav1.ObjectMeta{CreationTimestamp: &metav1.Time{}},
			Spec: &authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: asks("default", "get")}}})
	if err != nil || !self.GetStatus().GetAllowed() || self.GetStatus().GetReason() !=
		`RBAC: allowed by RoleBinding "reader/default" of ClusterRole "reader" to User "jane"` {
		t.Errorf("what she may do: %v, %v", self.GetStatus(), err)
	}
	review := func(
		by client, spec *authorizationv1.SubjectAccessReviewSpec,
	) (*authorizationv1.SubjectAccessReview, error) {
		return by.SubjectAccessReviews.Create(ctx(t), &authorizationv1rpc.CreateSubjectAccessReviewRequest{
			Object: &authorizationv1.SubjectAccessReview{Spec: spec}})
	}
	for _, x := range []struct {
		user, group, verb string
		want              bool
	}{
		{"jane", "", "get", true}, {"jane", "", "delete", false},
		{"", "readers", "list", true}, {"", "others", "list", false},
		{"x", authn.AdminsGroup, "delete", true}, {authn.SchedulerName, "", "get", true},
		{authn.SchedulerName, "", "create", false}, {authn.AnonymousName, "readers", "list", false},
	} {
		r, err := review(c.admin(), &authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: asks("default", x.verb),
			User: x.user, Groups: []string{x.group}})
		if err != nil || r.GetStatus().GetAllowed() != x.want {
			t.Errorf("%+v: %v, %v", x, r.GetStatus(), err)
		}
	}
	if _, err := review(jane, &authorizationv1.SubjectAccessReviewSpec{}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("she asks about others: %v", err)
	}
	if _, err := review(c.admin(), &authorizationv1.SubjectAccessReviewSpec{}); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("a question about nothing: %v", err)
	}
	local := func(namespace string) (*authorizationv1.LocalSubjectAccessReview, error) {
		return c.admin().LocalSubjectAccessReviews.Create(ctx(t), &authorizationv1rpc.CreateLocalSubjectAccessReviewRequest{
			Namespace: "default", Object: &authorizationv1.LocalSubjectAccessReview{
				Spec: &authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: asks(namespace, "list")}}})
	}
	if r, err := local("default"); err != nil || !r.GetStatus().GetAllowed() {
		t.Errorf("in the namespace: %v, %v", r, err)
	}
	if _, err := local("kube-system"); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("about another namespace: %v", err)
	}
	rules, err := jane.SelfSubjectRulesReviews.Create(ctx(t), &authorizationv1rpc.CreateSelfSubjectRulesReviewRequest{
		Object: &authorizationv1.SelfSubjectRulesReview{Spec: &authorizationv1.SelfSubjectRulesReviewSpec{
			Namespace: "default"}}})
	list := rules.GetStatus().GetResourceRules()
	if err != nil || len(list) != 1 || list[0].GetResources()[0] != "pods" ||
		rules.GetStatus().GetIncomplete() {
		t.Errorf("what she may do in the namespace: %v, %v", rules.GetStatus(), err)
	}
}
