package e2e_test

import "testing"

const greedy = `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers:
  - name: main
    image: host
    command: [sleep, "1000"]
    resources:
      requests: {cpu: "100000"}
`

// A pod that no node has room for starts once it asks for less. What runs is resized in place, or by a restart if its
// policy says so; what its node can never have room for is refused. spec: OBJ-10, SCHED-6
func TestResize(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	resize := func(cpu string) string {
		return `patch pod greedy --subresource resize -p ` +
			`'{"spec":{"containers":[{"name":"main","image":"other","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}'`
	}
	k.tour(t, []step{{line: "apply -f -", stdin: greedy, want: []string{`^pod/greedy created$`}}})
	k.until(t, "describe pod greedy", `FailedScheduling .*Insufficient cpu`)
	k.tour(t, []step{
		{line: resize("1m"), want: []string{`^pod/greedy patched$`}},
		{line: "wait --for=condition=Ready pod/greedy --timeout=2m", want: []string{`^pod/greedy condition met$`}},
		{line: "get pod greedy -o 'jsonpath={.spec.containers[0].resources.requests.cpu} {.spec.containers[0].image}'",
			want: []string{`^1m host$`}},
		{line: "get pod greedy --subresource resize -o name", want: []string{`^pod/greedy$`}},
		{line: resize("2m"), want: []string{`^pod/greedy patched$`}},
	})
	k.until(t, "get pod greedy -o 'jsonpath={.status.containerStatuses[0].resources.requests.cpu}'", `^2m$`)
	k.until(t, "describe pod greedy", `ResizeCompleted`)
	k.tour(t, []step{
		{line: "get pod greedy -o 'jsonpath={.status.containerStatuses[0].restartCount}'", want: []string{`^0$`}},
		{line: resize("100000"), code: 1, want: []string{`pods "greedy" is forbidden: node didn't have enough ` +
			`allocatable resources: cpu, requested: 100000000, allocatable: \d+`}},
		{line: resize("3m"), want: []string{`^pod/greedy patched$`}},
		{line: "delete pod greedy --now", want: []string{`deleted`}},
	})
}
