package e2e_test

import (
	"testing"
)

const jobsManifest = `
apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: [sh, -c, 'test $JOB_COMPLETION_INDEX -lt 3']}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: [sh, -c, 'exit 3']}
---
apiVersion: batch/v1
kind: Job
metadata: {name: held}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: ['true']}
---
apiVersion: batch/v1
kind: Job
metadata: {name: brief}
spec:
  ttlSecondsAfterFinished: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: ['true']}
`

// Jobs as people use them, by kubectl, with processes that end.
func TestJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "create job one --image=host -- true", want: []string{`^job.batch/one created$`}},
		{line: "wait --for=condition=complete job/one --timeout=2m", want: []string{`^job.batch/one condition met$`}},
		{line: "get jobs", want: []string{`^NAME +STATUS +COMPLETIONS +DURATION +AGE$`,
			`^one +Complete +1/1 +[\dms]+ +[\dms]+$`}},
		{line: "get job one -o wide", want: []string{`AGE +CONTAINERS +IMAGES +SELECTOR$`,
			`one +host +batch.kubernetes.io/controller-uid=`}},
		{line: "describe job one", want: []string{`^Completions: +1$`, `^Pods Statuses: +0 Active \(0 Ready\) / 1 Succeeded`,
			`SuccessfulCreate +.*job-controller +Created pod: one-`, `Completed +.*job-controller +Job completed`}},
		{line: "apply -f -", stdin: jobsManifest, want: []string{`^job.batch/many created$`}},
		{line: "wait --for=condition=complete job/many --timeout=2m", want: []string{`condition met`}},
		{line: "get job many -o jsonpath={.status.completedIndexes}", want: []string{`^0-2$`}},
		{line: "get pods -l batch.kubernetes.io/job-name=many", want: []string{`^many-0-[a-z0-9]{5} +0/1 +Completed`}},
		{line: "wait --for=condition=failed job/bad --timeout=2m", want: []string{`condition met`}},
		{line: "get job bad", want: []string{`^bad +Failed +0/1`}},
		{line: "wait --for=condition=suspended job/held --timeout=2m", want: []string{`condition met`}},
		{line: "get job held", want: []string{`^held +Suspended +0/1`}},
		{line: `patch job held -p '{"spec":{"suspend":false}}'`, want: []string{`^job.batch/held patched$`}},
		{line: "wait --for=condition=complete job/held --timeout=2m", want: []string{`condition met`}},
		{line: "wait --for=delete job/brief --timeout=2m", want: []string{``}},
		{line: `patch job many -p '{"spec":{"completionMode":"NonIndexed"}}'`, code: 1,
			want: []string{`field is immutable`}},
		{line: "delete job many bad one held", want: []string{`^job.batch "many" deleted`}},
		{line: "wait --for=delete pod --all --timeout=2m", want: []string{``}},
	})
}
