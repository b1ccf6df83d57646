package e2e_test

import "testing"

const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: host, command: [sleep, "3600"]}]
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: set}
spec:
  replicas: 2
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: host, command: [sleep, "3600"]}]
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: old}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: host, command: [sleep, "3600"]}]
`

// What keeps pods, as a user meets it: real processes, by the unmodified kubectl.
// spec: WORK-1, CLI-2, CLI-3
func TestWorkloads(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: workloads, want: []string{`^deployment.apps/web created$`,
			`^replicaset.apps/set created$`, `^replicationcontroller/old created$`}},
		{line: "rollout status deployment/web --timeout=2m", want: []string{`deployment "web" successfully rolled out`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=2 rs/set --timeout=2m", want: []string{`condition met`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=1 rc/old --timeout=2m", want: []string{`condition met`}},
		{line: "get all", want: []string{
			`^deployment.apps/web +3/3 +3 +3 +[\dms]+$`, `^replicaset.apps/set +2 +2 +2 +[\dms]+$`,
			`^replicaset.apps/web-[a-z0-9]+ +3 +3 +3 +[\dms]+$`, `^replicationcontroller/old +1 +1 +1 +[\dms]+$`,
			`^pod/web-[a-z0-9]+-[a-z0-9]{5} +1/1 +Running`, `^pod/old-[a-z0-9]{5} +1/1 +Running`,
		}},
		{line: "get deploy web -o wide", want: []string{
			`^NAME +READY +UP-TO-DATE +AVAILABLE +AGE +CONTAINERS +IMAGES +SELECTOR$`, `main +host +app=web$`,
		}},
		{line: "apply -f -", stdin: workloads, want: []string{`^deployment.apps/web unchanged$`}},
		{line: "scale deployment/web rs/set rc/old --replicas=2", want: []string{`^deployment.apps/web scaled$`,
			`^replicaset.apps/set scaled$`, `^replicationcontroller/old scaled$`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=2 rc/old --timeout=2m", want: []string{`condition met`}},
		{line: "get deploy web --subresource=scale", want: []string{`^NAME +DESIRED +AVAILABLE +AGE$`, `^web +2 +`}},
		{line: "set env deployment/web COLOR=blue", want: []string{`^deployment.apps/web env updated$`}},
		{line: "rollout status deployment/web --timeout=2m", want: []string{`deployment "web" successfully rolled out`}},
		{line: "rollout history deployment/web", want: []string{`^1 +<none>$`, `^2 +<none>$`}},
		{line: "rollout undo deployment/web", want: []string{`^deployment.apps/web rolled back$`}},
		{line: "rollout status deployment/web --timeout=2m", want: []string{`deployment "web" successfully rolled out`}},
		{line: "rollout restart deployment/web", want: []string{`^deployment.apps/web restarted$`}},
		{line: "rollout status deployment/web --timeout=2m", want: []string{`deployment "web" successfully rolled out`}},
		{line: "rollout pause deployment/web", want: []string{`^deployment.apps/web paused$`}},
		{line: "rollout resume deployment/web", want: []string{`^deployment.apps/web resumed$`}},
		{line: "describe deployment web", want: []string{`^Replicas: +2 desired \| 2 updated \| 2 total`,
			`Available +True +MinimumReplicasAvailable`, `^NewReplicaSet: +web-[a-z0-9]+ \(2/2 replicas created\)$`,
			`ScalingReplicaSet .*deployment-controller +Scaled up replica set web-[a-z0-9]+ from 0 to 3`}},
		{line: "describe rs set", want: []string{`SuccessfulCreate .*replicaset-controller +Created pod: set-`}},
		{line: `patch deployment web -p '{"spec":{"selector":{"matchLabels":{"app":"x"}}}}'`, code: 1,
			want: []string{`field is immutable`}},
		{line: "scale deployment/web rs/set rc/old --replicas=0", want: []string{`^deployment.apps/web scaled$`}},
		{line: "wait --for=delete pod -l 'app in (web, set, old)' --timeout=2m", want: []string{``}},
	})
}
