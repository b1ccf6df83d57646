package e2e_test

import "testing"

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
