package e2e_test

import (
	"strings"
	"testing"
)

// busy are pods of simulated nodes that say how much they use: twice what the autoscaler wants of them.
const busy = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {fake.monoplane.dev/cpu: 80m, fake.monoplane.dev/memory: 64Mi}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: anything, resources: {requests: {cpu: 100m}}}
`

// Simulated nodes tell what their pods use, and autoscalers go by it. spec: WORK-3, CLI-2
func TestAutoscalingOfSimulatedPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake", "--nodes", "3", "--node-name", "n")
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: busy, want: []string{`^deployment.apps/web created$`}},
		{line: "rollout status deploy/web --timeout=2m", want: []string{`successfully rolled out`}},
		{line: "top pods --containers", want: []string{`^POD +NAME +CPU\(cores\) +MEMORY\(bytes\)`,
			`^web-\S+ +main +80m +64Mi`}},
		{line: "top nodes", want: []string{`^NAME +CPU\(cores\) +CPU\(%\) +MEMORY\(bytes\) +MEMORY\(%\)`, `^n-0 +\d+m +`}},
		{line: "autoscale deployment web --min=1 --max=5 --cpu=40%",
			want: []string{`^horizontalpodautoscaler.autoscaling/web autoscaled$`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=5 deploy/web --timeout=3m", want: []string{`condition met`}},
		{line: "wait --for=jsonpath={.status.currentReplicas}=5 hpa/web --timeout=2m", want: []string{`condition met`}},
		{line: "wait --for=condition=ScalingLimited hpa/web --timeout=2m", want: []string{`condition met`}},
		{line: "get hpa", want: []string{`^web +Deployment/web +cpu: 80%/40% +1 +5 +5 +`}},
		{line: "describe hpa web", want: []string{`SuccessfulRescale`, `TooManyReplicas`}},
	})
	if out := k.ok(t, "top pods --no-headers"); strings.Count(out, "80m") != 5 {
		t.Errorf("top pods: %s", out)
	}
}
