package rest_test

import (
	"strings"
	"testing"
)

// A pod on the node's network publishes its ports as they are. Its template may leave it to the pod to say so, as
// those of node exporters and ingress controllers do, whichever kind has it; what it does say has to be so.
//
// spec: OBJ-3
func TestTemplatesOnTheNodesNetwork(t *testing.T) {
	f := newFront(t)
	const labels = `"metadata":{"labels":{"a":"b"}}`
	const selector = `"selector":{"matchLabels":{"a":"b"}},`
	for kind, tc := range map[string]struct{ path, before, after, field string }{
		"Deployment":  {"/apis/apps/v1/namespaces/default/deployments", `"spec":{` + selector, `}`, "spec."},
		"ReplicaSet":  {"/apis/apps/v1/namespaces/default/replicasets", `"spec":{` + selector, `}`, "spec."},
		"DaemonSet":   {"/apis/apps/v1/namespaces/default/daemonsets", `"spec":{` + selector, `}`, "spec."},
		"StatefulSet": {"/apis/apps/v1/namespaces/default/statefulsets", `"spec":{` + selector, `}`, "spec."},
		"Job":         {"/apis/batch/v1/namespaces/default/jobs", `"spec":{`, `}`, "spec."},
		"CronJob": {"/apis/batch/v1/namespaces/default/cronjobs", `"spec":{"schedule":"0 0 * * *","jobTemplate":{"spec":{`,
			`}}}`, "spec.jobTemplate.spec."},
		"ReplicationController": {"/api/v1/namespaces/default/replicationcontrollers", `"spec":{"selector":{"a":"b"},`, `}`,
			"spec."},
		"PodTemplate": {"/api/v1/namespaces/default/podtemplates", ``, ``, ""},
	} {
		restart := "Always"
		if strings.HasSuffix(kind, "Job") {
			restart = "Never"
		}
		body := func(ports string) string {
			return `{"metadata":{"name":"a"},` + tc.before + `"template":{` + labels + `,"spec":{"hostNetwork":true,` +
				`"restartPolicy":"` + restart + `","containers":[{"name":"c","image":"i","ports":[` + ports + `]}]}}` +
				tc.after + `}`
		}
		f.want(f.do("POST", tc.path, body(`{"containerPort":80,"hostPort":81}`)), 422,
			tc.field+"template.spec.containers[0].ports[0].hostPort", "must match `containerPort`")
		made := f.want(f.do("POST", tc.path, body(`{"containerPort":80}`)), 201, `"kind":"`+kind+`"`)
		if strings.Contains(made.body, "hostPort") {
			t.Errorf("what the pods get is in the template: %s", made.body)
		}
	}
	f.want(f.do("POST", pods, `{"metadata":{"name":"a"},"spec":{"hostNetwork":true,"containers":[{"name":"c",`+
		`"image":"i","ports":[{"containerPort":80}]}]}}`), 201, `"hostPort":80`)
}
