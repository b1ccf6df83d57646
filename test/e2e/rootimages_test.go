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

// machine is a network namespace in which a cluster is started, as if it were a machine of its own: what the cluster
// does to the machine's network it does to this one.
type machine struct {
	name string
	uid  int // Who starts the cluster; 0 for root.
	// ids is a file that stands for /etc/subuid and /etc/subgid; empty for the machine's.
	ids string
}

// newMachine makes a network namespace with nothing but a loopback.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{name: fmt.Sprintf("mp-e2e-%d-%d", os.Getpid(), namespaces.Add(1))}
	m.ip(t, "netns", "add", m.name)
	t.Cleanup(func() { m.ip(t, "netns", "del", m.name) })
	m.run(t, "ip", "link", "set", "lo", "up")
	return m
}

func (m *machine) ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// run runs a command on the machine and returns what it prints.
func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=/run/netns/" + m.name}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// program returns a program that runs another one on the machine.
func (m *machine) program(t *testing.T, path string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), filepath.Base(path))
	as := ""
	if m.uid != 0 {
		as = fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups ", m.uid)
	}
	if m.ids != "" {
		as = fmt.Sprintf("unshare -m sh -c 'mount --bind %s /etc/subuid && mount --bind %[1]s /etc/subgid && "+
			"exec \"$@\"' sh %s", m.ids, as)
	}
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/run/netns/%s %s%s \"$@\"\n", m.name, as, path)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// TestRootImagesAndNetwork runs a Deployment of an image without a container engine: its pods have addresses, a
// Service leads to them from pods by its name and from the machine by its port, also while the server is dead, and
// nothing of the network is left after down.
//
// spec: NET-1, WORK-4, CTR-6
func TestRootImagesAndNetwork(t *testing.T) {
	m := newMachine(t)
	archive, images := filepath.Join(t.TempDir(), "images.tar"), filepath.Join(t.TempDir(), "images")
	if err := containerd.WriteImages(archive); err != nil {
		t.Fatal(err)
	}
	monoplane := m.program(t, binary(t, "monoplane"))
	if out, err := exec.Command(monoplane, "image", "load", archive, "--image-dir", images).CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	dir := shortDir(t)
	begin := func() *cluster {
		t.Helper()
		c, err := start(monoplane, dir, "--runtime", "oci", "--image-dir", images)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := begin()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr of the cluster ends with:\n%s", c.stderr.tail(40))
		}
		if c.proc.Signal(syscall.SIGINT) == nil { // stops the pods
			c.waitExit(t)
		}
		if err := c.left(); err != nil {
			t.Error(err)
		}
	})
	k := c.kubectl(t, "default")
	k.path = m.program(t, k.path)
	apply := func(manifest string) {
		t.Helper()
		if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
	}
	apply(webManifest)
	k.ok(t, "rollout status deployment/web --timeout=60s")
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=60s")

	addresses := strings.Fields(k.ok(t, "get pods -o jsonpath={.items[*].status.podIP}"))
	seen := map[string]bool{}
	for _, a := range addresses {
		if seen[a] || !strings.HasPrefix(a, "10.244.") {
			t.Errorf("the pods' addresses are %v: each needs its own", addresses)
		}
		seen[a] = true
	}
	ask := func(from func(script string) string, host string) {
		t.Helper()
		var got string
		err := poll(patience, func() (bool, string) {
			got = from(fmt.Sprintf("echo | nc -w 5 %s || true", host))
			return strings.HasPrefix(got, "web-"), got
		})
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	inPod := func(script string) string {
		out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", script)
		return out
	}
	onMachine := func(script string) string {
		return m.run(t, "busybox", "sh", "-c", "busybox "+strings.ReplaceAll(script, "| nc", "| busybox nc"))
	}
	ip := k.ok(t, "get service web -o jsonpath={.spec.clusterIP}")
	port := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
	ask(inPod, ip+" 80")
	ask(inPod, "web 80")
	ask(inPod, "web.default.svc.cluster.local 80")
	ask(onMachine, ip+" 80")
	ask(onMachine, "127.0.0.1 "+port)
	const api = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo open"
	if out := inPod(api); out != "open\n" {
		t.Errorf("the API from a pod: %q", out)
	}

	c.kill(t)
	ask(onMachine, ip+" 80") // the kernel carries it
	c = begin()
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=60s")
	ask(inPod, "web 80")
	ask(onMachine, "127.0.0.1 "+port)
	if now := strings.Fields(k.ok(t, "get pods -o jsonpath={.items[*].status.podIP}")); strings.Join(now, " ") !=
		strings.Join(addresses, " ") {
		t.Errorf("the pods' addresses were %v and are %v after a restart", addresses, now)
	}

	if out, err := exec.Command(monoplane, "down", "--data-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	c.waitExit(t)
	if links := m.run(t, "ip", "-o", "link"); strings.Count(links, "\n") != 1 {
		t.Errorf("links are left:\n%s", links)
	}
	if routes := m.run(t, "ip", "route"); routes != "" {
		t.Errorf("routes are left:\n%s", routes)
	}
}

const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: localhost/box:1
        command: [sh, -c, 'while :; do nc -l -p 8080 -e hostname; done']
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`
