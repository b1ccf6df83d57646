package e2e_test

import (
	"regexp"
	"strings"
	"testing"
)

const debugged = `
apiVersion: v1
kind: Pod
metadata: {name: debugged}
spec:
  schedulingGates: [{name: example.com/never}]
  containers:
  - {name: main, image: host, command: [sleep, "1000"]}
`

// kubectl debug adds a container to a pod. This one is never given to a node: what a node does with the container is
// not the matter here. spec: INIT-6
func TestDebug(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: debugged, want: []string{`^pod/debugged created$`}},
		{line: "debug debugged --profile legacy --image host -c first --target main -- ls /", want: []string{
			`Targeting container "main"`}},
		{line: "debug debugged --profile legacy --image host -c second -- ls /"},
		{line: "get pod debugged --subresource ephemeralcontainers -o name", want: []string{`^pod/debugged$`}},
		{line: "get pod debugged -o 'jsonpath={range .spec.ephemeralContainers[*]}{.name} {.command} " +
			"{.targetContainerName};{end}'",
			want: []string{`^first \["ls","/"\] main;second \["ls","/"\] ;$`}},
		{line: "debug debugged --profile legacy --image host -c third --target other -- ls", code: 1, want: []string{
			`spec.ephemeralContainers\[2\].targetContainerName: Not found: "other"`}},
		{line: "debug missing --profile legacy --image host -- ls", code: 1, want: []string{`pods "missing" not found`}},
		{line: "delete pod debugged --now", want: []string{`deleted`}},
	})
}

// kubectl debug makes a copy of a pod with another container, or with another command in one of its own, and a pod on
// a node that sees the whole machine below /host. They run, and what they print is shown.
//
// spec: CTR-9, INIT-6
func TestDebugCopyAndNode(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "run web --image=host --labels=app=web --env=COLOR=red --command -- sh -c 'echo original; exec sleep 1000'"},
		{line: "wait --for=condition=Ready pod/web --timeout=2m"},
		// Copies lose the labels, so that no Service or ReplicaSet takes them for its own.
		{line: "debug web --image=host --copy-to=beside -c dbg -- sh -c 'echo debugging; exec sleep 1000'"},
		{line: "wait --for=condition=Ready pod/beside --timeout=2m"},
		{line: "get pod beside -o 'jsonpath={.spec.containers[*].name} {.metadata.labels}'", want: []string{`^web dbg $`}},
		{line: "debug web --copy-to=instead --container=web -- sh -c 'echo $COLOR; exec sleep 1000'"},
		{line: "wait --for=condition=Ready pod/instead --timeout=2m"},
		{line: "debug web --image=host --copy-to=shared --share-processes --keep-labels -c dbg -- sleep 1000"},
		{line: "wait --for=condition=Ready pod/shared --timeout=2m"},
		{line: "get pods -l app=web -o name", want: []string{`^pod/shared\npod/web$`}},
		{line: "debug web --image=host --copy-to=web -- true", code: 1, want: []string{`pods "web" already exists`}},
		{line: "debug web --image=host --copy-to=moved --replace --same-node -c dbg -- sleep 1000"},
		{line: "wait --for=condition=Ready pod/moved --timeout=2m"},
		{line: "wait --for=delete pod/web --timeout=2m"},
		{line: "debug node/none --image=host -- true", code: 1, want: []string{`nodes "none" not found`}},
	})
	k.until(t, "logs beside -c dbg", `^debugging\n$`)
	k.until(t, "logs beside -c web", `^original\n$`)
	k.until(t, "logs instead", `^red\n$`)

	node := strings.TrimSpace(k.ok(t, "get nodes -o jsonpath={.items[0].metadata.name}"))
	for _, profile := range []string{"legacy", "general", "sysadmin"} {
		out := k.ok(t, "debug node/"+node+" --profile="+profile+
			" --image=host -- sh -c 'test -e /host/proc/self && echo all of it; exec sleep 1000'")
		m := regexp.MustCompile(`Creating debugging pod (node-debugger-\S+) with container debugger on node ` + node).
			FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s: %s", profile, out)
		}
		k.until(t, "logs "+m[1], `^all of it\n$`)
		k.tour(t, []step{
			{line: "get pod " + m[1] + " -o 'jsonpath={.spec.nodeName} {.spec.hostPID} {.spec.restartPolicy}'",
				want: []string{`^` + node + ` true Never$`}},
			{line: "exec " + m[1] + " -- ls /host/proc/self", want: []string{`status`}},
		})
	}
	// Somebody who types: kubectl attaches to what it has made, and its end is that of the session.
	typing := words("debug moved -i -q --image=host -c typing --env=COLOR=blue -- sh")
	out, code := k.run(t, "echo typed $COLOR\nexit 4\n", typing...)
	if code != 0 || !strings.Contains(out, "typed blue\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	k.ok(t, "delete pod --all --now")
}
