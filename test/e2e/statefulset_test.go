package e2e_test

import "testing"

const statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, annotations: {kubernetes.io/change-cause: first}}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sleep, "3600"]
        env: [{name: NUMBER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}]
`

// Pods with identities, as a user meets them: real processes, by the unmodified kubectl. spec: WORK-2, CLI-2
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: statefulSet, want: []string{`^statefulset.apps/db created$`}},
		{line: "rollout status statefulset/db --timeout=2m",
			want: []string{`partitioned roll out complete: 2 new pods have been updated`}},
		{line: "get sts", want: []string{`^NAME +READY +AGE$`, `^db +2/2 +[\dms]+$`}},
		{line: "get statefulset db -o wide", want: []string{`^NAME +READY +AGE +CONTAINERS +IMAGES$`, `main +host$`}},
		{line: "get pods", want: []string{`^db-0 +1/1 +Running`, `^db-1 +1/1 +Running`}},
		{line: "get controllerrevisions", want: []string{`^db-[a-z0-9]+ +statefulset.apps/db +1 +[\dms]+$`}},
		{line: "get all", want: []string{`^statefulset.apps/db +2/2 +[\dms]+$`, `^pod/db-0 +1/1 +Running`}},
		{line: "apply -f -", stdin: statefulSet, want: []string{`^statefulset.apps/db unchanged$`}},
		{line: "scale sts/db --replicas=3", want: []string{`^statefulset.apps/db scaled$`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=3 sts/db --timeout=2m", want: []string{`condition met`}},
		{line: "get sts db --subresource=scale", want: []string{`^db +3 +3 `}},
		{line: "set env sts/db COLOR=blue", want: []string{`^statefulset.apps/db env updated$`}},
		{line: "rollout status sts/db --timeout=2m",
			want: []string{`partitioned roll out complete: 3 new pods have been updated`}},
		{line: "rollout history sts/db", want: []string{`^REVISION +CHANGE-CAUSE$`, `^1 +first$`, `^2 +first$`}},
		{line: "rollout history sts/db --revision=2", want: []string{`COLOR:\s+blue`}},
		{line: "rollout undo sts/db", want: []string{`^statefulset.apps/db rolled back$`}},
		{line: "rollout status sts/db --timeout=2m",
			want: []string{`partitioned roll out complete: 3 new pods have been updated`}},
		{line: "rollout history sts/db", want: []string{`^2 +first$`, `^3 +first$`}},
		{line: "get sts db -o jsonpath={.spec.template.spec.containers[0].env[*].name}", want: []string{`^NUMBER$`}},
		{line: "rollout undo sts/db --to-revision=3", want: []string{`skipped rollback`}},
		{line: "rollout restart sts/db", want: []string{`^statefulset.apps/db restarted$`}},
		{line: "rollout status sts/db --timeout=2m",
			want: []string{`partitioned roll out complete: 3 new pods have been updated`}},
		{line: "describe sts db", want: []string{`^Replicas: +3 desired \| 3 total$`, `^Update Strategy: +RollingUpdate$`,
			`SuccessfulCreate .*statefulset-controller +Create Pod db-0 in StatefulSet db successful`}},
		{line: `patch sts db -p '{"spec":{"serviceName":"other"}}'`, code: 1,
			want: []string{`updates to statefulset spec for fields other than`}},
		{line: "delete pod db-1", want: []string{`pod "db-1" deleted`}},
		{line: "wait --for=jsonpath={.status.readyReplicas}=3 sts/db --timeout=2m", want: []string{`condition met`}},
		{line: "scale sts/db --replicas=0", want: []string{`^statefulset.apps/db scaled$`}},
		{line: "wait --for=delete pod -l app=db --timeout=2m", want: []string{``}},
		{line: "delete sts db", want: []string{`statefulset.apps "db" deleted`}},
	})
}
