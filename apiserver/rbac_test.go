package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

// grant makes a ClusterRole with one rule, and gives it to somebody, in a namespace or, when that is empty, everywhere.
func (c *cluster) grant(name, namespace string, rule *rbacv1.PolicyRule, to ...*rbacv1.Subject) {
	c.t.Helper()
	must(c.admin().ClusterRoles.Create(ctx(c.t), &rbacv1.CreateClusterRoleRequest{Object: &rbacv1.ClusterRole{
		Metadata: &metav1.ObjectMeta{Name: name}, Rules: []*rbacv1.PolicyRule{rule},
	}}))(c.t)
	ref := &rbacv1.RoleRef{Kind: "ClusterRole", Name: name}
	if namespace == "" {
		must(c.admin().ClusterRoleBindings.Create(ctx(c.t), &rbacv1.CreateClusterRoleBindingRequest{
			Object: &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: name}, Subjects: to, RoleRef: ref},
		}))(c.t)
		return
	}
	must(c.admin().RoleBindings.Create(ctx(c.t), &rbacv1.CreateRoleBindingRequest{Object: &rbacv1.RoleBinding{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: namespace}, Subjects: to, RoleRef: ref,
	}}))(c.t)
}

func rule(verbs, groups, resources string) *rbacv1.PolicyRule {
	return &rbacv1.PolicyRule{
		Verbs: strings.Fields(verbs), ApiGroups: strings.Split(groups, " "), Resources: strings.Fields(resources),
	}
}

func person(name string) *rbacv1.Subject { return &rbacv1.Subject{Kind: "User", Name: name} }

// A right counts from the answer to the write that gave it on, on every server that the client asks, and a user who may
// read secrets sees what is in them.
//
// spec: OBJ-15
func TestRolesGiveRights(t *testing.T) {
	c := start(t)
	must(c.admin().Secrets.Create(ctx(t), &corev1.CreateSecretRequest{Object: &corev1.Secret{
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
