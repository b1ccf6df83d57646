package e2e_test

import "testing"

// scaled is a Deployment whose pods use hardly any of the cpu that they request.
const scaled = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: host, command: [sleep, "3600"], resources: {requests: {cpu: 100m}}}
`

// People autoscale and schedule with kubectl as they know it. spec: WORK-1, WORK-3
func TestSchedules(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: scaled, want: []string{`^deployment.apps/web created$`}},
		{line: "autoscale deployment web --min=2 --max=5 --cpu=80%",
			want: []string{`^horizontalpodautoscaler.autoscaling/web autoscaled$`}},
		{line: "wait --for=jsonpath={.spec.replicas}=2 deploy/web --timeout=2m", want: []string{`condition met`}},
		{line: "wait --for=condition=AbleToScale hpa/web --timeout=2m", want: []string{`condition met`}},
		{line: "get hpa", want: []string{`^NAME +REFERENCE +TARGETS +MINPODS +MAXPODS +REPLICAS +AGE$`,
			`^web +Deployment/web +cpu: \S+/80% +2 +5 +\d+ +`}},
		{line: "describe hpa web", want: []string{`^Min replicas: +2$`, `^Max replicas: +5$`, `AbleToScale +True`}},
		{line: "create cronjob c --image=host '--schedule=TZ=UTC * * * * *' -- true", code: 1,
			want: []string{`cannot use TZ or CRON_TZ in schedule`}},
		{line: "create cronjob c --image=host --schedule=@yearly -- true", want: []string{`^cronjob.batch/c created$`}},
		{line: "get cj", want: []string{`^NAME +SCHEDULE +TIMEZONE +SUSPEND +ACTIVE +LAST SCHEDULE +AGE$`,
			`^c +@yearly +<none> +False +0 +<none> +`}},
		{line: "create job --from=cronjob/c by-hand", want: []string{`^job.batch/by-hand created$`}},
		{line: "wait --for=condition=Complete job/by-hand --timeout=2m", want: []string{`condition met`}},
		{line: "patch cj c -p '{\"spec\":{\"schedule\":\"@every 1s\"}}'", want: []string{`^cronjob.batch/c patched$`}},
		{line: "wait --for=jsonpath={.status.lastScheduleTime} cj/c --timeout=3m", want: []string{`condition met`}},
		{line: "describe cronjob c", want: []string{`^Schedule: +@every`, `^Concurrency Policy: +Allow$`,
			`^Last Schedule Time: +[A-Z]`}},
		{line: "delete cj c", want: []string{`^cronjob.batch "c" deleted`}},
	})
}
