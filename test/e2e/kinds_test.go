package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// spec: CLI-2, CLI-3
func TestSecrets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	k := c.kubectl(t, c.namespace(t))
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	for _, name := range []string{cert, key} {
		if err := os.WriteFile(name, []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const typed = "apiVersion: v1\nkind: Secret\nmetadata: {name: typed}\ntype: kubernetes.io/basic-auth\n" +
		"stringData: {VALUE}\n"
	k.tour(t, []step{
		{line: "create secret generic plain --from-literal=user=admin --from-literal=pass=hunter2",
			want: []string{`^secret/plain created$`}},
		{line: "get secrets", want: []string{`^NAME +TYPE +DATA +AGE$`, `^plain +Opaque +2 +[\dms]+$`}},
		{line: "describe secret plain", want: []string{`^Type: +Opaque$`, `^pass: +7 bytes$`, `^user: +5 bytes$`}},
		{line: "get secret plain -o 'jsonpath={.data.pass}'", want: []string{`^aHVudGVyMg==$`}},
		{line: "create secret docker-registry pull --docker-server=r.example.com --docker-username=u --docker-password=p",
			want: []string{`created$`}},
		{line: "get secret pull -o 'jsonpath={.type}'", want: []string{`^kubernetes.io/dockerconfigjson$`}},
		{line: "get secrets --field-selector type=Opaque -o name", want: []string{`\Asecret/plain\n\z`}},
		{line: "apply -f -", stdin: regexp.MustCompile("VALUE").ReplaceAllString(typed, "other: x"), code: 1, want: []string{
			`data\[username\]: Required value`, `data\[password\]: Required value`,
		}},
		{line: "apply -f -", stdin: regexp.MustCompile("VALUE").ReplaceAllString(typed, "username: me"),
			want: []string{`^secret/typed created$`}},
		{line: "get secret typed -o 'jsonpath={.data}{.stringData}'", want: []string{`^{"username":"bWU="}$`}},
		{line: `patch secret plain -p '{"stringData":{"pass":"other"}}'`, want: []string{`^secret/plain patched$`}},
		{line: "get secret plain -o 'jsonpath={.data.pass}'", want: []string{`^b3RoZXI=$`}},
		{line: `patch secret plain --type=json -p '[{"op":"add","path":"/immutable","value":true}]'`,
			want: []string{`patched$`}},
		{line: `patch secret plain -p '{"stringData":{"pass":"again"}}'`, code: 1,
			want: []string{"data: Forbidden: field is immutable when `immutable` is set"}},
		{line: "explain secret.stringData", want: []string{`never returned`}},
		{line: "delete secret plain typed pull", want: []string{`^secret "plain" deleted`}},
	})
	// kubectl itself looks at the pair before it sends one.
	pair := "apiVersion: v1\nkind: Secret\nmetadata: {name: pair}\ntype: kubernetes.io/tls\n" +
		"stringData: {tls.crt: a, tls.key: b}\n"
	k.tour(t, []step{
		{line: "create secret tls pair --cert=" + cert + " --key=" + key, code: 1, want: []string{`PEM`}},
		{line: "create -f -", stdin: pair, want: []string{`^Warning: data: tls.crt and tls.key are not a certificate`,
			`^secret/pair created$`}},
	})
}

// spec: CLI-2, CLI-3, LIFE-8
func TestTemplatesRevisionsAndRuntimeClasses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	k := c.kubectl(t, c.namespace(t))
	const template = `
apiVersion: v1
kind: PodTemplate
metadata: {name: web}
template:
  metadata: {labels: {app: web}}
  spec: {containers: [{name: c, image: nginx}, {name: d, image: busybox}]}
`
	const revision = `
apiVersion: apps/v1
kind: ControllerRevision
metadata:
  name: web-1
  ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: web, uid: u, controller: true}]
data: {spec: {template: {a: b}}}
revision: 1
`
	const classes = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: vm}
handler: kata
overhead: {podFixed: {cpu: 250m, memory: 64Mi}}
scheduling: {nodeSelector: {vm: "yes"}}
---
apiVersion: v1
kind: Pod
metadata: {name: small}
spec: {runtimeClassName: vm, containers: [{name: c, image: nginx}]}
`
	k.tour(t, []step{
		{line: "apply -f -", stdin: template, want: []string{`^podtemplate/web created$`}},
		{line: "apply -f -", stdin: template, want: []string{`^podtemplate/web unchanged$`}},
		{line: "get podtemplates", want: []string{`^NAME +CONTAINERS +IMAGES +POD LABELS$`,
			`^web +c,d +nginx,busybox +app=web$`}},
		{line: "set image podtemplate/web c=nginx:2", code: 1}, // kubectl knows no pods in it
		{line: `patch podtemplate web -p '{"template":{"spec":{"containers":[{"name":"c","image":"nginx:2"}]}}}'`,
			want: []string{`patched$`}},
		{line: "get podtemplate web -o 'jsonpath={.metadata.generation}{.template.spec.containers[*].image}'",
			want: []string{`^2nginx:2 busybox$`}},
		{line: "describe podtemplate web", want: []string{`nginx:2`}},
		{line: "delete podtemplate web", want: []string{`deleted`}},

		{line: "apply -f -", stdin: revision, want: []string{`^controllerrevision.apps/web-1 created$`}},
		{line: "apply -f -", stdin: revision, want: []string{`^controllerrevision.apps/web-1 unchanged$`}},
		{line: "get controllerrevisions", want: []string{`^NAME +CONTROLLER +REVISION +AGE$`,
			`^web-1 +widget\.example\.com/web +1 +[\dms]+$`}},
		{line: "get controllerrevision web-1 -o 'jsonpath={.data.spec.template.a}'", want: []string{`^b$`}},
		{line: `patch controllerrevision web-1 --type=merge -p '{"data":{"x":1}}'`, code: 1,
			want: []string{`data: Invalid value: .*field is immutable`}},
		{line: `patch controllerrevision web-1 --type=merge -p '{"revision":2}'`, want: []string{`patched$`}},
		{line: "delete controllerrevision web-1", want: []string{`deleted`}},

		{line: "apply -f -", stdin: classes, want: []string{`^runtimeclass.node.k8s.io/vm created$`, `^pod/small created$`}},
		{line: "apply -f -", stdin: classes, want: []string{`^runtimeclass.node.k8s.io/vm unchanged$`,
			`^pod/small (unchanged|configured)$`}},
		{line: "get runtimeclasses", want: []string{`^NAME +HANDLER +AGE$`, `^vm +kata +[\dms]+$`}},
		{line: "get pod small -o 'jsonpath={.spec.overhead.cpu} {.spec.overhead.memory} {.spec.nodeSelector.vm}'",
			want: []string{`^250m 64Mi yes$`}},
		{line: `patch runtimeclass vm --type=merge -p '{"handler":"other"}'`, code: 1,
			want: []string{`handler: Invalid value: "other": field is immutable`}},
		{line: "label node --all vm=yes", want: []string{`labeled$`}},
	})
	k.until(t, "get events -o 'jsonpath={.items[*].message}'", `no runtime handler "kata" is configured`)
	k.tour(t, []step{
		{line: "delete pod small --wait=false", want: []string{`deleted`}},
		{line: "delete runtimeclass vm", want: []string{`deleted`}},
		{line: "run late --image=nginx '--overrides={\"spec\":{\"runtimeClassName\":\"vm\"}}'", code: 1,
			want: []string{`there is no runtime class "vm"`}},
	})
}
