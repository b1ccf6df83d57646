package e2e_test

import (
	"fmt"
	"testing"
)

// kubectl's three ways to delete an owner: its dependents go after it, before it, or stay. spec: OBJ-12
func TestCascade(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	// own makes an owner, a dependent of it, and a pod that depends on that.
	own := func() {
		t.Helper()
		k.ok(t, "create configmap owner")
		dependent := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: dependent\n"+
			"  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s, blockOwnerDeletion: true}]\n",
			k.ok(t, "get configmap owner -o jsonpath={.metadata.uid}"))
		k.tour(t, []step{{line: "apply -f -", stdin: dependent, want: []string{` created$`}}})
		pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: pod\n"+
			"  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: dependent, uid: %s, blockOwnerDeletion: true}]\n"+
			"spec: {containers: [{name: main, image: host, command: [sleep, inf]}], terminationGracePeriodSeconds: 5}\n",
			k.ok(t, "get configmap dependent -o jsonpath={.metadata.uid}"))
		k.tour(t, []step{
			{line: "apply -f -", stdin: pod, want: []string{` created$`}},
			{line: "wait --for=condition=Ready pod/pod --timeout=2m", want: []string{`condition met$`}},
		})
	}
	own()
	k.tour(t, []step{
		{line: "delete configmap owner --dry-run=server", want: []string{`\Aconfigmap "owner" deleted`}},
		{line: "delete configmap owner", want: []string{`\Aconfigmap "owner" deleted`}},
		{line: "wait --for=delete configmap/dependent pod/pod --timeout=2m"},
	})
	own()
	// kubectl waits until the owner is gone, which is when all that block it are.
	k.tour(t, []step{
		{line: "delete configmap owner --cascade=foreground", want: []string{`\Aconfigmap "owner" deleted`}},
		{line: "get configmap owner dependent", code: 1, want: []string{`"owner" not found`, `"dependent" not found`}},
		{line: "get pod pod", code: 1, want: []string{`"pod" not found`}},
	})
	own()
	k.tour(t, []step{
		{line: "delete configmap owner --cascade=orphan", want: []string{`\Aconfigmap "owner" deleted`}},
		{line: "get configmap dependent -o 'jsonpath={.metadata.name} {.metadata.ownerReferences}'",
			want: []string{`\Adependent $`}},
		{line: "get pods", want: []string{`^pod +1/1 +Running`}},
		{line: "delete configmap dependent --cascade=foreground", want: []string{`\Aconfigmap "dependent" deleted`}},
		{line: "get pod pod", code: 1, want: []string{`"pod" not found`}},
	})
}
