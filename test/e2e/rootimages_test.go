//go:build rootonly

package e2e_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestRootImagesAndNetwork runs a Deployment of an image without a container engine: its pods have addresses, a
// Service leads to them from pods by its name and from the machine by its port, also while the server is dead, and
// nothing of the network is left after down.
//
// spec: NET-1, WORK-4, CTR-6
func TestRootImagesAndNetwork(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	u := m.imageCluster(t)
	u.begin(t)
	k := u.kubectl(t)
	apply := func(manifest string) {
		t.Helper()
		if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
	}
	apply(webManifest)
	k.ok(t, "rollout status deployment/web --timeout=2m")
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")

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
	eventually(t, "a pod reaches the API", func() (bool, string) { out := inPod(api); return out == "open\n", out })

	// What somebody takes away on the machine is there again after a heartbeat.
	m.run(t, "ip", "route", "flush", "proto", "109")
	ask(onMachine, ip+" 80")

	u.now.kill(t)
	ask(onMachine, ip+" 80") // the kernel carries it
	u.begin(t)
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
	ask(inPod, "web 80")
	ask(onMachine, "127.0.0.1 "+port)
	if now := strings.Fields(k.ok(t, "get pods -o jsonpath={.items[*].status.podIP}")); strings.Join(now, " ") !=
		strings.Join(addresses, " ") {
		t.Errorf("the pods' addresses were %v and are %v after a restart", addresses, now)
	}

	u.down(t)
	if links := m.run(t, "ip", "-o", "link"); strings.Count(links, "\n") != 1 {
		t.Errorf("links are left:\n%s", links)
	}
	if routes := m.run(t, "ip", "route"); routes != "" {
		t.Errorf("routes are left:\n%s", routes)
	}
	// No pod holds an image any more.
	if out, err := exec.Command(u.monoplane, "image", "rm", "localhost/box:1", "--image-dir", u.images).
		CombinedOutput(); err != nil {
		t.Errorf("image rm: %v\n%s", err, out)
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
