package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Who may act as somebody else does so with the rights of that one, not his own; a part of the control plane nobody
// is. spec: OBJ-16
func TestImpersonation(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	k := c.kubectl(t, ns)
	k.tour(t, []step{
		{line: "--as=bob delete namespace " + ns, code: 1, want: []string{
			`^Error from server \(Forbidden\): namespaces "` + ns + `" is forbidden: User "bob" cannot delete resource ` +
				`"namespaces" in API group "" in the namespace "` + ns + `"`,
		}},
		{line: "--as=bob create configmap a", code: 1, want: []string{`User "bob" cannot create resource "configmaps"`}},
		{line: "get configmaps a", code: 1, want: []string{`configmaps "a" not found`}},
		{line: "--as=bob --as-group=system:masters create configmap a", want: []string{`configmap/a created`}},
		{line: "--as=bob --as-uid=1 auth whoami", want: []string{`Username +bob`, `UID +1`, `system:authenticated`}},
		{line: "--as=system:node:n --as-group=system:nodes get pods", code: 1, want: []string{
			`part of the control plane`,
		}},
		{line: "create rolebinding bobs --clusterrole=view --user=bob", want: []string{`created`}},
		{line: "--as=bob get configmaps a", want: []string{`a +`}},
		{line: "--as=bob auth can-i get configmaps", want: []string{`^yes`}},
		{line: "--as=bob auth can-i get secrets", code: 1, want: []string{`^no`}},
		{line: "--as=bob auth can-i --list", want: []string{`configmaps +\[\] +\[\] +\[get list watch\]`}},
		{line: "--as=bob get secrets", code: 1, want: []string{`User "bob" cannot list resource "secrets"`}},
		{line: "--as=bob create rolebinding more --clusterrole=admin --user=bob", code: 1, want: []string{
			`User "bob" cannot create resource "rolebindings"`,
		}},
	})
	live, err := c.client(t).CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	if err != nil || live.DeletionTimestamp != nil {
		t.Errorf("the namespace: %v, %v", live, err)
	}
	got := send(t, c.http(t), "GET", c.url+"/healthz", "", "", "Impersonate-Group", "system:masters")
	if got.code != http.StatusForbidden || !strings.Contains(got.body, `"reason":"Forbidden"`) {
		t.Errorf("a health check: %d %s", got.code, got.body)
	}
}
