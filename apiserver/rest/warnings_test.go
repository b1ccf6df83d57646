package rest_test

import (
	"slices"
	"strings"
	"testing"
)

// told returns the warnings of an answer.
func told(a answer) []string {
	var texts []string
	for _, h := range a.header.Values("Warning") {
		text := strings.TrimSuffix(strings.TrimPrefix(h, `299 - "`), `"`)
		texts = append(texts, strings.ReplaceAll(text, `\"`, `"`))
	}
	return texts
}

// Whoever makes an object that says something in vain, twice, or in an old way is told so in Kubernetes' words, and
// whoever makes it of a template, too.
//
// spec: OBJ-4
func TestWarnings(t *testing.T) {
	const name = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS " +
		"label is recommended: [must not contain dots]"
	const preferred = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference."
	f := newFront(t)
	for _, tc := range []struct {
		name, spec string
		want       []string
	}{
		{"plain", `"containers":[{"name":"c","image":"i"}]`, nil},
		{"a.b", `"containers":[{"name":"c","image":"i"}]`, []string{name}},
		{"selector", `"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c","image":"i"}]`, []string{
			`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"affinity", `"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,` +
			`"preference":{"matchExpressions":[{"key":"node-role.kubernetes.io/master","operator":"In","values":["-"]}]}}]},` +
			`"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a"}]}},` +
			`"containers":[{"name":"c","image":"i"}]`, []string{
			preferred + `matchExpressions[0].key: ` +
				`node-role.kubernetes.io/master is use "node-role.kubernetes.io/control-plane" instead`,
			preferred + `matchExpressions[0].values[0]: - is invalid, a valid label must be an empty string or `,
			"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null " +
				"labelSelector results in matching no pod",
		}},
		{"bytes", `"containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"100m"}}}]`, []string{
			`spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer`,
			`spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer`}},
		{"env", `"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"A","value":"$(A)2"},` +
			`{"name":"A","value":"3"}]}]`, []string{
			`spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`}},
		{"ports", `"initContainers":[{"name":"i","image":"i","restartPolicy":"Always",` +
			`"ports":[{"containerPort":1,"name":"a"}]}],"containers":[{"name":"c","image":"i","ports":[` +
			`{"containerPort":1,"name":"a"},` +
			`{"containerPort":2,"hostPort":2},{"containerPort":2,"hostPort":2,"hostIP":"127.0.0.1"},` +
			`{"containerPort":2,"hostIP":"127.0.0.2","name":"b"}]}]`, []string{
			"spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]",
			"spec.containers[0].ports[2]: dangerously ambiguous port definition with spec.containers[0].ports[1]",
			"spec.containers[0].ports[3]: hostIP set without hostPort: {Name:b HostPort:0 ContainerPort:2 Protocol:TCP " +
				"HostIP:127.0.0.2}",
			"spec.containers[0].ports[3]: overlapping port definition with spec.containers[0].ports[1]",
			"spec.containers[0].ports[3]: overlapping port definition with spec.containers[0].ports[2]",
			`spec.containers[0].ports[0]: duplicate port name "a" with spec.initContainers[0].ports[0], services and probes ` +
				"that select ports by name will use spec.initContainers[0].ports[0]"}},
		{"twice", `"hostAliases":[{"ip":"1.2.3.4"},{"ip":"1.2.3.4"}],"imagePullSecrets":[{"name":"a"},{"name":"a"},{}],` +
			`"containers":[{"name":"c","image":"i"}]`, []string{
			`spec.hostAliases[1].ip: duplicate ip "1.2.3.4"`, `spec.imagePullSecrets[1].name: duplicate name "a"`,
			`spec.imagePullSecrets[2].name: invalid empty name ""`}},
		{"addresses", `"dnsPolicy":"None","dnsConfig":{"nameservers":["FD00::1"]},"containers":[{"name":"c","image":"i"}]`,
			[]string{`spec.dnsConfig.nameservers[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ` +
				`("fd00::1")`}},
		{"files", `"volumes":[{"name":"v","configMap":{"name":"m","items":[{"key":"a","path":"x"},` +
			`{"key":"b","path":"x/y"}]}},{"name":"p","projected":{"sources":[{"secret":{"name":"s","items":[` +
			`{"key":"a","path":"token"}]}},` +
			`{"serviceAccountToken":{"path":"token"}}]}}],"containers":[{"name":"c","image":"i"}]`, []string{
			`volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x"`,
			`volume "p" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token" (Secret "s")`}},
	} {
		path, body := pods, `{"metadata":{"name":"`+tc.name+`"},"spec":{`+tc.spec+`}}`
		if got := told(f.want(f.do("POST", path, body), 201)); !begins(got, tc.want) {
			t.Errorf("%s:\n%q\nwant\n%q", tc.name, got, tc.want)
		}
		// The same of the template of a Deployment.
		body = `{"metadata":{"name":"` + tc.name + `"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{` +
			`"metadata":{"labels":{"a":"b"}},"spec":{` + tc.spec + `}}}}`
		var want []string
		for _, text := range tc.want {
			switch {
			case text == name:
				text = strings.Replace(name, "the Pod's hostname", "Pod names and hostnames", 1)
			case strings.Contains(text, "resources.requests"): // which only pods get of their limits
				continue
			case strings.HasPrefix(text, "spec."):
				text = "spec.template." + strings.ReplaceAll(text, " spec.", " spec.template.spec.")
			}
			want = append(want, text)
		}
		got := told(f.want(f.do("POST", "/apis/apps/v1/namespaces/default/deployments", body), 201))
		if !begins(got, want) {
			t.Errorf("Deployment %s:\n%q\nwant\n%q", tc.name, got, want)
		}
	}
}

// begins says whether each text begins with what is wanted of it.
func begins(got, want []string) bool {
	return slices.EqualFunc(got, want, strings.HasPrefix)
}
