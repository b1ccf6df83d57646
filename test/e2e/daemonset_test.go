package e2e_test

import (
	"strings"
	"testing"
)

const daemons = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: nginx}]
`

// A DaemonSet, as a user meets it, by the unmodified kubectl. Its own cluster, because it taints and drains nodes.
// spec: WORK-1, CLI-2, CLI-3, DISR-4
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "3")
	k := c.kubectl(t, "default")
	nodes := strings.Fields(k.ok(t, "get nodes -o name"))
	name := func(i int) string { return strings.TrimPrefix(nodes[i], "node/") }
	const done, updated = `daemon set "agent" successfully rolled out`, `^agent +3 +3 +3 +3 +3 +<none> +[\dms]+`
	k.tour(t, []step{
		{line: "apply -f -", stdin: daemons, want: []string{`^daemonset.apps/agent created$`}},
		{line: "rollout status daemonset/agent --timeout=2m", want: []string{done}},
		{line: "get ds", want: []string{
			`^NAME +DESIRED +CURRENT +READY +UP-TO-DATE +AVAILABLE +NODE SELECTOR +AGE$`, updated}},
		{line: "get ds agent -o wide", want: []string{`CONTAINERS +IMAGES +SELECTOR$`, `main +nginx +app=agent$`}},
		{line: "get all", want: []string{`^daemonset.apps/agent +3 +3 +3`}},
		{line: "get pods -o wide", want: []string{
			`^agent-[a-z0-9]{5} +1/1 +Running .* ` + name(0), `Running .* ` + name(1), `Running .* ` + name(2)}},
		{line: "set image daemonset/agent main=nginx:2", want: []string{`^daemonset.apps/agent image updated$`}},
		{line: "rollout status daemonset/agent --timeout=2m", want: []string{done}},
		{line: "rollout history daemonset/agent", want: []string{`^1 +<none>$`, `^2 +<none>$`}},
		{line: "rollout history daemonset/agent --revision=1", want: []string{`Image:\s+nginx$`}},
		{line: "rollout undo daemonset/agent", want: []string{`^daemonset.apps/agent rolled back$`}},
		{line: "rollout status daemonset/agent --timeout=2m", want: []string{done}},
		{line: "get ds agent -o jsonpath={.spec.template.spec.containers[0].image}", want: []string{`^nginx$`}},
		{line: "rollout history daemonset/agent", want: []string{`^2 +<none>$`, `^3 +<none>$`}},
		{line: "rollout restart daemonset/agent", want: []string{`^daemonset.apps/agent restarted$`}},
		{line: "rollout status daemonset/agent --timeout=2m", want: []string{done}},
		{line: "describe ds agent", want: []string{`^Desired Number of Nodes Scheduled: 3$`, `^Pods Status:\s+3 Running`,
			`SuccessfulCreate .*daemonset-controller +Created pod: agent-`}},

		// Who drains a node is told of the pods that would come back, and leaves them.
		{line: "drain " + name(0), code: 1, want: []string{`cannot delete DaemonSet-managed Pods`}},
		{line: "drain " + name(0) + " --ignore-daemonsets", want: []string{`ignoring DaemonSet-managed Pods`, `drained$`}},
		{line: "get ds", want: []string{updated}},
		{line: "uncordon " + name(0), want: []string{`uncordoned$`}},

		{line: "taint node " + name(1) + " gone=soon:NoExecute", want: []string{`tainted$`}},
		{line: "wait --for=jsonpath={.status.desiredNumberScheduled}=2 ds/agent --timeout=2m",
			want: []string{`condition met`}},
		{line: "wait --for=jsonpath={.status.numberMisscheduled}=0 ds/agent --timeout=2m", want: []string{`condition met`}},
		{line: "taint node " + name(1) + " gone-", want: []string{`untainted$`}},
		{line: "wait --for=jsonpath={.status.numberAvailable}=3 ds/agent --timeout=2m", want: []string{`condition met`}},
		{line: "scale daemonset/agent --replicas=1", code: 1, want: []string{`(?i)could not find the requested resource`}},
		{line: `patch ds agent -p '{"spec":{"selector":{"matchLabels":{"app":"x"}}}}'`, code: 1,
			want: []string{`field is immutable`}},
		{line: "delete ds agent", want: []string{`daemonset.apps "agent" deleted`}},
		{line: "wait --for=delete pod -l app=agent --timeout=2m", want: []string{``}},
	})
}
