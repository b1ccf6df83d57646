//go:build rootonly

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/test/containerd"
)

// Where nobody may make namespaces, `monoplane up` says so and runs what needs none.
//
// spec: CLI-2, CLI-4
func TestRootAutoWithoutNamespaces(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "monoplane")
	text := fmt.Sprintf("#!/bin/sh\nexec setpriv --bounding-set=-sys_admin %s \"$@\"\n", binary(t, "monoplane"))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, runProgram(t, nil, script, upArgs(shortDir(t), "--runtime", "oci")...),
		"--runtime=oci: containers cannot be made here: ", "operation not permitted")
	c, err := start(script, shortDir(t), "--runtime", "auto")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
	const why = `Pods can have image "host" only (--runtime=host): containers cannot be made here: `
	if out := c.stderr.String(); !strings.Contains(out, why) || !strings.Contains(out, "operation not permitted") {
		t.Errorf("it is not said why images cannot be run: %q", out)
	}
	if out := c.stdout.String(); !strings.Contains(out, `runtime     host: image "host" only`) ||
		strings.Contains(out, "nginx") {
		t.Errorf("it is not said what can be run:\n%s", out)
	}
	k := c.kubectl(t, "default")
	if out, code := k.run(t, withoutViewManifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "wait --for=condition=Ready pod/hello --timeout=2m")
	eventually(t, "an event says what is not mounted", func() (bool, string) {
		events := k.ok(t, "get events --field-selector=reason=NotEnforced -o jsonpath={.items[*].message}")
		return strings.Contains(events, "/var/run/secrets/kubernetes.io/serviceaccount") &&
			strings.Contains(events, "no namespace can be made"), events
	})
	// What a pod asks for is not left out.
	eventually(t, "an event says why a volume cannot be mounted", func() (bool, string) {
		events := k.ok(t, "get events --field-selector=reason=Failed,involvedObject.name=secret "+
			"-o jsonpath={.items[*].message}")
		return strings.Contains(events, "no namespace can be made"), events
	})
}

// withoutViewManifest has a pod that finds its token by its environment, as processes do where nothing can be mounted,
// and one that asks for a volume.
const withoutViewManifest = `
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  containers:
  - name: c
    image: host
    command: [sh, -c, 'cd "$MONOPLANE_SERVICE_ACCOUNT" && test -s token && test -s ca.crt && exec sleep 600']
---
apiVersion: v1
kind: Pod
metadata: {name: secret}
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: c, image: host, command: [sleep, '600'], volumeMounts: [{name: v, mountPath: /v}]}]
`

// Where the images are another user's, `monoplane up` says so and runs what needs none.
//
// spec: CLI-2, CLI-4
func TestRootAutoForeignImages(t *testing.T) {
	t.Parallel()
	monoplane, images := binary(t, "monoplane"), filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(images, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(images, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(t, runProgram(t, nil, monoplane, upArgs(shortDir(t), "--runtime", "oci", "--image-dir", images)...),
		"--runtime=oci: image store: "+images, "it belongs to user ", "not to user root")
	c, err := start(monoplane, shortDir(t), "--runtime", "auto", "--image-dir", images)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
	why := `Pods can have image "host" only (--runtime=host): image store: ` + images
	if out := c.stderr.String(); !strings.Contains(out, why) || !strings.Contains(out, "it belongs to ") {
		t.Errorf("it is not said why images cannot be run: %q", out)
	}
	if out := c.stdout.String(); !strings.Contains(out, `runtime     host: image "host" only`) {
		t.Errorf("it is not said what can be run:\n%s", out)
	}
	k := c.kubectl(t, "default")
	k.ok(t, "run hello --image=host --command -- sleep 600")
	k.ok(t, "wait --for=condition=Ready pod/hello --timeout=2m")
	if entries, err := os.ReadDir(images); err != nil || len(entries) > 0 {
		t.Errorf("the other user's directory has %v: %v", entries, err)
	}
}

// Clusters of root on one machine do not get into each other's way: each has a range for its pods, which it keeps, and
// the machine goes on reaching the Services of the first, until that is gone.
//
// spec: NET-1, CTR-6
func TestRootAutoTwoClusters(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	home := t.TempDir()
	archive, images := filepath.Join(home, "images.tar"), filepath.Join(home, "images")
	if err := containerd.WriteImages(archive); err != nil {
		t.Fatal(err)
	}
	monoplane := m.program(t, binary(t, "monoplane"))
	if out, err := exec.Command(monoplane, "image", "load", archive, "--image-dir", images).CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	begin := func(dir string) *cluster {
		t.Helper()
		c, err := start(monoplane, dir, "--runtime", "auto", "--image-dir", images)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("stderr of the cluster on %s ends with:\n%s", dir, c.stderr.tail(20))
			}
			select {
			case <-c.exited:
				return
			default:
			}
			if c.proc.Signal(syscall.SIGINT) == nil { // stops the pods
				c.waitExit(t)
			}
			if err := c.left(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	answers := func(c *cluster, beginning string) {
		t.Helper()
		k := c.kubectl(t, "default")
		k.on(t, m)
		if out, code := k.run(t, webManifest, "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
		k.ok(t, "rollout status deployment/web --timeout=2m")
		k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
		if ip := k.ok(t, "get pod client -o jsonpath={.status.podIP}"); !strings.HasPrefix(ip, beginning) {
			t.Errorf("the pod has the address %s, want one that begins with %s", ip, beginning)
		}
		eventually(t, "a Service is reached from a pod", func() (bool, string) {
			out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "echo | nc -w 5 web 80")
			return strings.HasPrefix(out, "web-"), out
		})
	}
	route := func(want string) {
		t.Helper()
		if out := m.run(t, "ip", "route", "show", "10.96.0.0/16"); !strings.Contains(out, want) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("the machine's way to Services is %q, want one via %s", out, want)
		}
	}
	one, two := shortDir(t), shortDir(t)
	first := begin(one)
	answers(first, "10.244.0.")
	second := begin(two)
	route("10.244.0.1")
	answers(second, "10.245.0.")
	answers(first, "10.244.0.")

	// Killed, and started in the other order, both have what they had.
	first.kill(t)
	second.kill(t)
	second = begin(two)
	first = begin(one)
	answers(second, "10.245.0.")
	answers(first, "10.244.0.")
	if out := m.run(t, "ip", "route"); !strings.Contains(out, "10.244.0.0/24") ||
		!strings.Contains(out, "10.245.0.0/24") {
		t.Errorf("the machine's routes to pods are\n%s", out)
	}
}
