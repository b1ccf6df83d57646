package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// An administrator empties three nodes one after another, of which each has room for two pods. A ReplicaSet of three,
// of which a budget keeps two, replaces what goes; its pods are available when the test says so.
//
// spec: DISR-2, DISR-3, DISR-4, WORK-1
func TestDrain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "3", "--node-name", "node")
	k := c.kubectl(t, "default")
	nodes := strings.Fields(k.ok(t, "get nodes -o jsonpath={.items[*].metadata.name}"))
	if len(nodes) != 3 {
		t.Fatalf("nodes %v, want three", nodes)
	}
	room := resource.MustParse(strings.TrimSpace(k.ok(t, "get nodes -o jsonpath={.items[0].status.allocatable.cpu}")))
	containers := fmt.Sprintf("containers: [{name: c, image: nginx, resources: {requests: {cpu: %dm}}}]",
		room.MilliValue()*4/10)
	apply := func(manifest string) {
		t.Helper()
		if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
			t.Fatalf("apply: %s", out)
		}
	}
	alone := func(name, node string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  nodeName: " + node + "\n  " +
			containers + "\n"
	}
	// at returns the pods of the ReplicaSet that are where a JSONPath filter says, and are not on their way out.
	at := func(node string) (names []string) {
		out := k.ok(t, `get pods -l app=web -o 'jsonpath={range .items[*]}{.metadata.name},{.spec.nodeName},`+
			`{.metadata.deletionTimestamp}{" "}{end}'`)
		for field := range strings.FieldsSeq(out) {
			if f := strings.Split(field, ","); f[1] == node && f[2] == "" {
				names = append(names, f[0])
			}
		}
		return names
	}
	one := func(what, node string) (name string) {
		t.Helper()
		eventually(t, what, func() (bool, string) {
			names := at(node)
			if len(names) == 1 {
				name = names[0]
			}
			return len(names) == 1, fmt.Sprintf("on %q: %v", node, names)
		})
		return name
	}
	available := func(name string) {
		t.Helper()
		k.ok(t, "patch pod "+name+` --subresource=status -p '{"status":{"conditions":`+
			`[{"type":"example.com/up","status":"True"}]}}'`)
		k.ok(t, "wait --for=condition=Ready pod/"+name+" --timeout=2m")
	}
	const drain = "drain --force --ignore-daemonsets "
	const refused = `Cannot evict pod as it would violate the pod's disruption budget`

	// At first there is one of the three on each node, and pod-x on the first.
	apply("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec:\n  minAvailable: 2\n" +
		"  selector: {matchLabels: {app: web}}\n" +
		"---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec:\n  replicas: 3\n" +
		"  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n" +
		"      readinessGates: [{conditionType: example.com/up}]\n" +
		"      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100,\n" +
		"        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}}]}}\n" +
		"      " + containers + "\n")
	defer k.run(t, "", "delete", "replicaset", "web") // whose pods would come back
	for i, node := range nodes {
		available(one(fmt.Sprintf("pod %d of the ReplicaSet", i), node))
	}
	apply(alone("pod-x", nodes[0]))
	k.ok(t, "wait --for=condition=Ready pod/pod-x --timeout=2m")
	k.until(t, "get pdb web", `(?m)^web +2 +N/A +1 +`)

	// The first node: both of its pods go at once, and pod-d is started elsewhere.
	podA := one("pod-a", nodes[0])
	k.ok(t, "patch pod "+podA+` -p '{"metadata":{"finalizers":["example.com/look"]}}'`)
	first, done := k.background(t, drain+nodes[0])
	k.until(t, "get pod "+podA+" -o yaml", `(?s)deletionTimestamp: .*reason: EvictionByEvictionAPI`)
	k.ok(t, "wait --for=delete pod/pod-x --timeout=2m")
	k.until(t, "get pdb web", `(?m)^web +2 +N/A +0 +`)
	var d string // where pod-d is
	var podD string
	eventually(t, "pod-d", func() (bool, string) {
		for _, node := range nodes[1:] {
			if names := at(node); len(names) == 2 {
				d = node
				podD = names[0]
				if out := k.ok(t, "get pod "+names[1]+" -o jsonpath={.status.conditions}"); !strings.Contains(out,
					`"type":"example.com/up"`) {
					podD = names[1]
				}
				return true, ""
			}
		}
		return false, "on no node are two"
	})
	k.ok(t, "patch pod "+podA+` --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`)
	<-done
	first.waitFor(t, `node/`+nodes[0]+` drained`)

	// An impatient administrator is held up by pod-c, until pod-d is available.
	other := nodes[1]
	if d == other {
		other = nodes[2]
	}
	out, code := k.run(t, "", words(drain+other+" --timeout=1s")...)
	if code == 0 || !strings.Contains(out, refused) {
		t.Errorf("while pod-d starts another node can be drained: exit code %d\n%s", code, out)
	}
	k.ok(t, "uncordon "+other)
	apply(alone("pod-y", other)) // there is no more room now
	available(podD)
	k.until(t, "get pdb web", `(?m)^web +2 +N/A +1 +`)

	// Of its two pods one goes, the other is refused. There is no room for pod-e, so that it stays like that.
	second, done := k.background(t, drain+d)
	second.waitFor(t, refused)
	podE := one("pod-e", "")
	k.until(t, "get pod "+podE, `(?m)^\S+ +0/1 +Pending`)
	one("who was refused", d)

	// With the first node back there is.
	k.ok(t, "uncordon "+nodes[0])
	available(one("pod-e", nodes[0]))
	<-done
	second.waitFor(t, `node/`+d+` drained`)
	if left := at(d); len(left) > 0 {
		t.Errorf("left on the drained node: %v", left)
	}
}
