package defaultroles_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
	rbacv1rpc "monoplane.dev/api/rbac/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/clusterroleaggregation"
	"monoplane.dev/controllers/defaultroles"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs both controllers of roles until the test ends, or stop is called.
func run(t *testing.T, server *apitest.Server) (stop func()) {
	t.Helper()
	roles, err := defaultroles.New(defaultroles.Config{Client: server.Controller("default-roles")})
	if err != nil {
		t.Fatal(err)
	}
	sums, err := clusterroleaggregation.New(clusterroleaggregation.Config{
		Client: server.Controller("clusterrole-aggregation")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- roles.Run(ctx) }()
	go func() { done <- sums.Run(ctx) }()
	time.Sleep(time.Minute)
	if err := roles.Ready(); err != nil {
		t.Error(err)
	}
	if err := sums.Ready(); err != nil {
		t.Error(err)
	}
	return func() {
		cancel()
		<-done
		<-done
	}
}

// spec: OBJ-15
func TestDefaultRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		c := server.Admin()
		stop := run(t, server)
		for _, b := range defaultroles.Bindings() {
			if _, err := c.ClusterRoleBindings.Get(t.Context(), &metav1.GetRequest{Name: b.Metadata.Name}); err != nil {
				t.Error(err)
			}
		}
		role := func(name string) *rbacv1.ClusterRole {
			t.Helper()
			r, err := c.ClusterRoles.Get(t.Context(), &metav1.GetRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		update := func(r *rbacv1.ClusterRole) {
			t.Helper()
			_, err := c.ClusterRoles.Update(t.Context(), &rbacv1rpc.UpdateClusterRoleRequest{Object: r})
			if err != nil {
				t.Fatal(err)
			}
		}
		gives := func(name string, part *rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(role(name).Rules, func(r *rbacv1.PolicyRule) bool { return proto.Equal(r, part) })
		}
		secrets := role("system:aggregate-to-edit").Rules[0]
		if !gives("edit", secrets) || !gives("admin", secrets) || gives("view", secrets) {
			t.Errorf("admin, edit and view give %v, %v and %v", role("admin").Rules, role("edit").Rules, role("view").Rules)
		}
		used := role("system:aggregated-metrics-reader").Rules[0]
		if !slices.Contains(used.Resources, "pods") || !gives("view", used) || !gives("edit", used) ||
			!gives("admin", used) {
			t.Errorf("who may view, edit or administer does not see what pods use: %v", role("view").Rules)
		}
		// A role of somebody's becomes part of those whose label it has, and of those that have theirs.
		widgets := &rbacv1.PolicyRule{Verbs: []string{"get"}, ApiGroups: []string{"x"}, Resources: []string{"widgets"}}
		_, err := c.ClusterRoles.Create(t.Context(), &rbacv1rpc.CreateClusterRoleRequest{Object: &rbacv1.ClusterRole{
			Metadata: &metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{
				"rbac.authorization.k8s.io/aggregate-to-view": "true"}}, Rules: []*rbacv1.PolicyRule{widgets}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !gives("view", widgets) || !gives("edit", widgets) || !gives("admin", widgets) {
			t.Error("the rules of the new role are not in view, edit and admin")
		}
		if _, err := c.ClusterRoles.Delete(t.Context(), &metav1.DeleteRequest{Name: "widgets"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if gives("view", widgets) || gives("admin", widgets) {
			t.Error("the rules of the deleted role are still in view or admin")
		}
		// What is taken away comes back with the next start, and what was added stays; unless somebody wants it otherwise.
		stop()
		r := object.Clone(role("system:basic-user"))
		r.Rules = []*rbacv1.PolicyRule{widgets}
		update(r)
		r = object.Clone(role("system:discovery"))
		r.Metadata.Annotations["rbac.authorization.kubernetes.io/autoupdate"], r.Rules = "false", nil
		update(r)
		if _, err := c.ClusterRoles.Delete(t.Context(), &metav1.DeleteRequest{Name: "cluster-admin"}); err != nil {
			t.Fatal(err)
		}
		stop = run(t, server)
		if n := len(role("system:basic-user").Rules); n != 3 || !gives("system:basic-user", widgets) {
			t.Errorf("a role that was changed: %v", role("system:basic-user").Rules)
		}
		if rules := role("system:discovery").Rules; len(rules) > 0 {
			t.Errorf("a role that is not to be updated: %v", rules)
		}
		role("cluster-admin")
		before := role("admin").Metadata.GetResourceVersion()
		stop()
		stop = run(t, server)
		if after := role("admin").Metadata.GetResourceVersion(); after != before {
			t.Errorf("a start with nothing to do has written admin: %s, %s", before, after)
		}
		stop()

		// An editor reads what is in secrets of the namespace, and gives nobody a role.
		_, err = c.RoleBindings.Create(t.Context(), &rbacv1rpc.CreateRoleBindingRequest{Object: &rbacv1.RoleBinding{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "b"},
			Subjects: []*rbacv1.Subject{{Kind: "User", Name: "jane"}},
			RoleRef:  &rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}}})
		if err != nil {
			t.Fatal(err)
		}
		jane := server.As("jane", authn.AuthenticatedGroup)
		if _, err := jane.Secrets.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); err != nil {
			t.Error(err)
		}
		if _, err := jane.Roles.List(t.Context(), &metav1.ListRequest{Namespace: "default"}); !apierrors.Is(err,
			apierrors.Forbidden) {
			t.Errorf("an editor lists roles: %v", err)
		}
	})
}
