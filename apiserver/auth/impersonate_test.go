package auth

import (
	"slices"
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/apiserver/authn"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

// Who acts as somebody else has the verb impersonate on each thing that is asked for, and nobody acts as a part of the
// control plane.
//
// spec: OBJ-16, DEL-8
func TestImpersonate(t *testing.T) {
	x := roles.New()
	may := func(name, group, resource string, names ...string) {
		x.Changed(nil, &rbacv1.ClusterRole{Metadata: &metav1.ObjectMeta{Name: name}, Rules: []*rbacv1.PolicyRule{{
			Verbs: []string{"impersonate"}, ApiGroups: []string{group}, Resources: []string{resource}, ResourceNames: names,
		}}})
		x.Changed(nil, &rbacv1.ClusterRoleBinding{Metadata: &metav1.ObjectMeta{Name: name},
			Subjects: []*rbacv1.Subject{{Kind: "User", Name: "jane"}},
			RoleRef:  &rbacv1.RoleRef{Kind: "ClusterRole", Name: name}})
	}
	may("users", "", "users", "bob", "system:node:n1", "system:anonymous")
	may("groups", "", "groups", "g", "system:nodes", "system:unauthenticated")
	may("extra", "authentication.k8s.io", "userextras/scopes", "view")
	may("uids", "authentication.k8s.io", "uids", "1")
	may("accounts", "", "serviceaccounts")
	z := NewAuthorizer(nil, x)
	admin := &authn.User{Name: "root", Groups: []string{authn.AdminsGroup}}
	jane := &authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}}
	for _, c := range []struct {
		by     *authn.User
		wish   authn.Wish
		groups string
		want   string
	}{
		{jane, authn.Wish{User: "bob"}, "system:authenticated", ""},
		{jane, authn.Wish{User: "bob", Groups: []string{"g"}, UID: "1", Extra: map[string][]string{"scopes": {"view"}}},
			"g system:authenticated", ""},
		{jane, authn.Wish{User: "system:serviceaccount:a:b"},
			"system:serviceaccounts system:serviceaccounts:a system:authenticated", ""},
		{jane, authn.Wish{User: "system:anonymous"}, "system:unauthenticated", ""},
		{jane, authn.Wish{User: "eve"}, "",
			`users "eve" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{jane, authn.Wish{User: "bob", Groups: []string{"system:masters"}}, "", `groups "system:masters" is forbidden`},
		{jane, authn.Wish{User: "bob", UID: "2"}, "", `uids.authentication.k8s.io "2" is forbidden`},
		{jane, authn.Wish{User: "bob", Extra: map[string][]string{"scopes": {"view", "edit"}}}, "",
			`cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io"`},
		{jane, authn.Wish{User: "system:node:n1", Groups: []string{"system:nodes"}}, "", "part of the control plane"},
		{admin, authn.Wish{User: "system:node:n1", Groups: []string{"system:nodes"}, UID: "key"}, "",
			"part of the control plane"},
		{admin, authn.Wish{User: "system:controller:podgc"}, "", "part of the control plane"},
		{admin, authn.Wish{User: authn.SchedulerName}, "", "part of the control plane"},
		{admin, authn.Wish{User: "x", Groups: []string{"system:masters"}}, "system:masters system:authenticated", ""},
		{&authn.User{Name: authn.AnonymousName}, authn.Wish{User: "bob"}, "", `users "bob" is forbidden`},
		{&authn.User{Name: authn.SchedulerName}, authn.Wish{User: "bob"}, "", `users "bob" is forbidden`},
	} {
		as, err := z.Impersonate(c.by, &c.wish)
		switch {
		case c.want != "":
			if !apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s as %+v: %v, want %s", c.by.Name, c.wish, err, c.want)
			}
		case err != nil:
			t.Errorf("%s as %+v: %v", c.by.Name, c.wish, err)
		case as.Name != c.wish.User || as.UID != c.wish.UID || !slices.Equal(as.Groups, strings.Fields(c.groups)):
			t.Errorf("%s as %+v is %+v", c.by.Name, c.wish, as)
		}
	}
}
