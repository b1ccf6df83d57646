package e2e_test

import (
	"fmt"
	"testing"
)

// kubectl deletes in the background by default, which here leaves what the object owns: it says so, and only then.
// spec: OBJ-12
func TestDependentsStay(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.ok(t, "create configmap owner")
	uid := k.ok(t, "get configmap owner -o jsonpath={.metadata.uid}")
	dependent := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: dependent\n"+
		"  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]\n", uid)
	const warning = `^Warning: configmaps "owner" is the owner of 1 configmaps, which stay: dependents are not ` +
		`deleted with their owner`
	k.tour(t, []step{
		{line: "apply -f -", stdin: dependent, want: []string{` created$`}},
		{line: "get configmaps", want: []string{`^dependent `}},
		{line: "delete configmap owner --dry-run=server", want: []string{warning, `^configmap "owner" deleted`}},
		{line: "delete configmap owner --dry-run=server --cascade=orphan", want: []string{`\Aconfigmap "owner" deleted`}},
		{line: "delete configmap owner", want: []string{warning, `^configmap "owner" deleted`}},
		{line: "get configmap dependent -o name", want: []string{`^configmap/dependent$`}},
		{line: "delete configmap dependent", want: []string{`\Aconfigmap "dependent" deleted`}},
	})
}
