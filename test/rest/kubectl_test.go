package rest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/api/services"

	metav1 "monoplane.dev/api/meta/v1"
)

// kubectl runs the command that make kubectl builds, or the one that KUBECTL names.
type kubectl struct {
	t    *testing.T
	path string
	env  []string
}

func newKubectl(t *testing.T, s *server) *kubectl {
	t.Helper()
	name := os.Getenv("KUBECTL")
	if name == "" {
		name = "../../bin/kubectl"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; make kubectl builds it, or let KUBECTL name another", err)
	}
	return &kubectl{t, path, append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+s.kubeconfig)}
}

// run returns what kubectl prints; it must succeed, or fail, as said.
func (k *kubectl) run(ok bool, stdin string, args ...string) string {
	k.t.Helper()
	cmd := exec.CommandContext(k.t.Context(), k.path, args...)
	cmd.Env = k.env
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if (err == nil) != ok {
		k.t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (k *kubectl) want(out string, texts ...string) {
	k.t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			k.t.Errorf("output lacks %q:\n%s", text, out)
		}
	}
}

const manifest = `apiVersion: v1
kind: Pod
metadata:
  name: hello
spec:
  containers:
  - name: c
    image: host
    env:
    - {name: A, value: one}
`

// spec: CLI-2
func TestKubectl(t *testing.T) {
	s := newServer(t)
	k := newKubectl(t, s)
	k.want(k.run(true, "", "version"), "v1.36.3+monoplane")
	k.want(k.run(true, "", "api-resources"), "pods", "leases", "coordination.k8s.io/v1")
	k.want(k.run(true, "", "create", "namespace", "x"), "namespace/x created")
	k.want(k.run(true, "", "create", "configmap", "m", "--from-literal=a=b"), "configmap/m created")
	k.want(k.run(true, manifest, "apply", "-f", "-"), "pod/hello created")
	k.want(k.run(true, manifest, "apply", "-f", "-"), "pod/hello unchanged")
	k.want(k.run(true, strings.Replace(manifest, "image: host", "image: other", 1), "apply", "-f", "-"),
		"pod/hello configured")
	k.want(k.run(false, manifest, "create", "-f", "-"), "AlreadyExists")
	k.want(k.run(false, strings.Replace(manifest, "containers", "contaners", 1), "create", "-f", "-"),
		`strict decoding error: unknown field "spec.contaners"`)
	k.want(k.run(false, strings.Replace(manifest, "name: hello", "name: 5", 1), "create", "-f", "-"), "metadata.name")
	k.want(k.run(true, "", "label", "pod", "hello", "a=b"), "pod/hello labeled")
	k.want(k.run(true, "", "get", "pods", "-A"), "NAMESPACE", "hello")
	k.want(k.run(true, "", "get", "pods", "-l", "a=b", "-o", "name"), "pod/hello")
	k.want(k.run(true, "", "get", "pod", "hello", "-o", "yaml"), "image: other")
	k.want(k.run(true, k.run(true, "", "get", "pod", "hello", "-o", "yaml"), "replace", "-f", "-"), "pod/hello replaced")
	k.want(k.run(true, "", "get", "pods", "--sort-by=.metadata.name", "-o", "wide"), "hello")
	k.want(k.run(true, "", "get", "po,cm"), "pod/hello", "configmap/m")
	k.want(k.run(true, "", "describe", "pod", "hello"), "Image:", "other")
	k.want(k.run(true, "", "explain", "pod.spec.containers.env"), "VERSION:", "valueFrom")
	k.want(k.run(false, "", "get", "widgets"), "the server doesn't have a resource type")
	k.want(k.run(false, "", "get", "pod", "absent"), `pods "absent" not found`)
	k.want(k.run(true, "", "get", "--raw", "/livez?verbose"), "livez check passed")
	k.want(k.run(true, "", "wait", "--for=jsonpath={.spec.containers[0].image}=other", "pod/hello", "--timeout=10s"),
		"condition met")
	k.want(k.run(true, "", "delete", "configmap", "m"), `configmap "m" deleted`)
	k.want(k.run(true, "", "delete", "pod", "hello", "--force", "--grace-period=0"), `pod "hello" force deleted`)
}

// kubectl explains every kind to its last field, from the schemas of v3, and, as the kubectl of before did, of v2.
//
// spec: CLI-2
func TestKubectlExplainsEverything(t *testing.T) {
	s := newServer(t)
	k := newKubectl(t, s)
	for _, s := range services.All() {
		k.want(k.run(true, "", "explain", "--recursive", "--api-version="+s.Kind.APIVersion(), s.Kind.Plural),
			"KIND:       "+s.Kind.Kind, "\n  metadata")
	}
	k.want(k.run(true, "", "explain", "pod.spec.restartPolicy"), "FIELD: restartPolicy <string>", "ENUM:", "OnFailure")
	k.want(k.run(true, "", "explain", "pod.spec.containers"), "-required-")
	k.want(k.run(true, "", "explain", "--recursive", "--output=plaintext-openapiv2", "deployments"),
		"KIND:     Deployment", "maxSurge\t<string>")
	k.want(k.run(true, "", "explain", "--output=plaintext-openapiv2", "jobs.spec.template.spec.containers.ports"),
		"containerPort\t<integer> -required-")
}

// kubectl apply makes its patch from the OpenAPI schemas: it must know by which key each list is merged.
//
// spec: CLI-2
func TestKubectlApplyMergesByKey(t *testing.T) {
	s := newServer(t)
	k := newKubectl(t, s)
	k.run(true, manifest, "apply", "-f", "-")
	patches := make(chan *metav1.PatchRequest, 10)
	s.api.React(func(_ context.Context, _ string, req any) error {
		if p, ok := req.(*metav1.PatchRequest); ok {
			patches <- p
		}
		return nil
	})
	// The server refuses it, as kube-apiserver does, after it has seen the patch.
	k.want(k.run(false, strings.Replace(manifest, "{name: A, value: one}", "{name: B, value: two}", 1), "apply", "-f",
		"-"),
		"pod updates may not change fields")
	p := <-patches
	if p.GetPatchType() != "application/strategic-merge-patch+json" {
		t.Errorf("patch type %q", p.GetPatchType())
	}
	k.want(string(p.GetPatch()), `"$setElementOrder/containers":[{"name":"c"}]`, `"$setElementOrder/env":[{"name":"B"}]`,
		`{"name":"B","value":"two"}`, `{"$patch":"delete","name":"A"}`)
}

// An edit sends a strategic merge patch and shows what the server refuses.
//
// spec: CLI-2
func TestKubectlEdit(t *testing.T) {
	s := newServer(t)
	k := newKubectl(t, s)
	k.run(true, manifest, "create", "-f", "-")
	editor := filepath.Join(t.TempDir(), "editor")
	script := "#!/bin/sh\nsed 's/image: host/image: edited/' \"$1\" > \"$1.new\" && mv \"$1.new\" \"$1\"\n"
	if err := os.WriteFile(editor, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	k.env = append(k.env, "KUBE_EDITOR="+editor)
	k.want(k.run(true, "", "edit", "pod", "hello"), "pod/hello edited")
	k.want(k.run(true, "", "get", "pod", "hello", "-o", "jsonpath={.spec.containers[0].image}"), "edited")
}

// spec: CLI-2, OBJ-7
func TestKubectlWatch(t *testing.T) {
	s := newServer(t)
	k := newKubectl(t, s)
	k.run(true, manifest, "create", "-f", "-")
	cmd := exec.CommandContext(t.Context(), k.path, "get", "pods", "-w")
	cmd.Env = k.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	buf := make([]byte, 1024)
	read := func(until string) {
		t.Helper()
		for !strings.Contains(text.String(), until) {
			n, err := out.Read(buf)
			if text.Write(buf[:n]); err != nil {
				t.Fatalf("no %q: %v in %q", until, err, text.String())
			}
		}
	}
	read("hello")
	k.run(true, strings.Replace(manifest, "name: hello", "name: second", 1), "create", "-f", "-")
	read("second")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
