package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Without roles nobody can act as somebody else, and kubectl says so instead of doing it as the administrator.
// spec: OBJ-16
func TestImpersonation(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	k := c.kubectl(t, ns)
	k.tour(t, []step{
		{line: "--as=bob delete namespace " + ns, code: 1, want: []string{
			`^Error from server \(Forbidden\): users "bob" is forbidden: User "monoplane:admin" cannot impersonate resource ` +
				`"users"`,
		}},
		{line: "--as=bob --as-group=system:masters get pods", code: 1, want: []string{`users "bob" is forbidden`}},
		{line: "--as=bob --as-uid=1 get pods", code: 1, want: []string{`users "bob" is forbidden`}},
		{line: "--as=bob get --raw /readyz", code: 1, want: []string{`Forbidden`}},
		{line: "--as=bob create configmap a", code: 1, want: []string{`users "bob" is forbidden`}},
		{line: "get configmaps a", code: 1, want: []string{`configmaps "a" not found`}},
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
