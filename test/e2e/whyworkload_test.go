package e2e_test

import (
	"regexp"
	"testing"
)

// stuck are workloads that do not get on, each for another reason.
const stuck = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: crashes}
spec:
  selector: {matchLabels: {app: crashes}}
  template:
    metadata: {labels: {app: crashes}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: host, command: [sh, -c, "exit 3"]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: refused}
spec:
  selector: {matchLabels: {app: refused}}
  template:
    metadata: {labels: {app: refused}}
    spec:
      priorityClassName: none
      containers: [{name: main, image: host, command: [sleep, "3600"]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: unready}
spec:
  selector: {matchLabels: {app: unready}}
  template:
    metadata: {labels: {app: unready}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sleep, "3600"]
        readinessProbe: {exec: {command: ["false"]}, periodSeconds: 1}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: big}
spec:
  replicas: 5
  selector: {matchLabels: {app: big}}
  template:
    metadata: {labels: {app: big}}
    spec:
      nodeSelector: {disk: ssd}
      containers: [{name: main, image: host, resources: {requests: {cpu: "1000"}}}]
`

// Why a workload does not get on, in one call. spec: SCHED-6, WORK-1
func TestWhyWorkload(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	namespace := c.namespace(t)
	k := c.kubectl(t, namespace)
	k.tour(t, []step{{line: "apply -f -", stdin: stuck, want: []string{`^daemonset.apps/unready created$`}}})
	for workload, wants := range map[string][]string{
		"deployment/crashes": {`^deployment.apps/crashes: 0 of 1 pods are ready`,
			`(?m)^1 +CrashLoopBackOff +crashes-\S+ +container main: restarted \d+ times, the last exit code was 3 \(Error\)$`,
			`(?m)^- condition Available is False, MinimumReplicasUnavailable`},
		"deploy/refused": {`^deployment.apps/refused: 0 of 0 pods are ready`,
			`(?m)^- condition ReplicaFailure is True, FailedCreate: .*no PriorityClass`,
			`(?m)^- replicaset.apps/refused-\S+: event FailedCreate, \S+ ago: Error creating: .*no PriorityClass`},
		"ds/unready": {
			`(?m)^1 +NotReady +unready-\S+ +container main does not pass its readiness probe; Unhealthy: Readiness`},
		"replicaset/big": {`(?m)^5 +Unschedulable +big-\S+,big-\S+,big-\S+ and 2 more +0/1 nodes are available`,
			`(?m)^ +NodeAffinity refuses 1 of 1 nodes: `, `(?m)^ +NodeResourcesFit refuses 1 of 1 nodes: Insufficient cpu$`},
	} {
		for _, want := range wants {
			re := regexp.MustCompile(want)
			eventually(t, "why "+workload+" like "+want, func() (bool, string) {
				out, code := c.why(t, "", "-n", namespace, workload)
				return code == 0 && re.MatchString(out), "got:\n" + out
			})
		}
	}
	if out, code := c.why(t, "", "-n", namespace, "-o", "json", "rs/big"); code != 0 ||
		!regexp.MustCompile(`"name": "replicaset.apps/big"`).MatchString(out) {
		t.Errorf("json: code %d\n%s", code, out)
	}
	if out, code := c.why(t, "", "-n", namespace, "deploy/nobody"); code != 1 ||
		out != "monoplane: deployments.apps \"nobody\" not found\n" {
		t.Errorf("one that is not there: code %d\n%s", code, out)
	}
	k.ok(t, "delete deploy,ds,rs --all")
	k.ok(t, "wait --for=delete pod --all --timeout=2m")
}
