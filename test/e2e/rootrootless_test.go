//go:build rootonly

package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unprivileged is a user who owns nothing on the machine and may do nothing special there.
const unprivileged = 54321

// TestRootUserImagesAndNetwork runs a Deployment of an image as a user who is not root, with nothing installed and
// nothing allowed: pods have addresses and names, reach each other, Services, the API and what is outside; clients
// from outside reach them by the node port and are seen with their own address; the server is killed and finds all of
// it again; and nothing is left after down.
//
// spec: NET-1, WORK-4, CTR-6, CTR-9
func TestRootUserImagesAndNetwork(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.uid = unprivileged + 2 // Nobody else's, so that what is left is its own.
	far := m.outside(t)
	u := m.imageCluster(t)
	u.begin(t)
	for _, want := range []string{"  pods        10.244.0.0/16\n", "  node ports  192.0.2.1\n", ", not root: "} {
		if !strings.Contains(u.now.stdout.String(), want) {
			t.Errorf("up does not say %q:\n%s", want, u.now.stdout)
		}
	}
	k := u.kubectl(t)
	if out, code := k.run(t, userManifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "rollout status deployment/web --timeout=2m")
	k.ok(t, "wait --for=condition=Ready pod/client pod/machine pod/onhost --timeout=2m")
	addresses := k.ok(t, "get pods -l app=web -o jsonpath={.items[*].status.podIP}")
	if all := strings.Fields(addresses); len(all) != 2 || all[0] == all[1] || !strings.HasPrefix(all[0], "10.244.") {
		t.Errorf("the pods' addresses are %v: each needs its own", all)
	}
	ip := k.ok(t, "get service web -o jsonpath={.spec.clusterIP}")
	port := k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}")
	inPod := func(script string) string {
		out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", script)
		return out
	}
	says := func(from func(script string) string, host, want string) {
		t.Helper()
		var got string
		err := poll(patience, func() (bool, string) {
			got = from(fmt.Sprintf("echo | nc -w 5 %s || true", host))
			return strings.Contains(got, want), got
		})
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	on := func(where *machine) func(string) string {
		return func(script string) string {
			return where.run(t, "busybox", "sh", "-c", strings.ReplaceAll(script, "| nc", "| busybox nc"))
		}
	}
	everything := func() {
		t.Helper()
		says(inPod, strings.Fields(addresses)[0]+" 8080", "web-")
		says(inPod, ip+" 80", "web-")
		says(inPod, "web 80", "web-")
		says(inPod, "web.default.svc.cluster.local 80", "web-")
		says(inPod, "192.0.2.2 9000", "outside")
		says(on(m), "127.0.0.1 "+port, "web-")
		says(on(far), "192.0.2.1 "+port, "020200C0") // 192.0.2.2, as /proc/net/tcp has it
		const api = "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && " +
			"test -s /run/secrets/kubernetes.io/serviceaccount/token && echo open"
		eventually(t, "a pod reaches the API", func() (bool, string) {
			out := inPod(strings.ReplaceAll(api, "/run/", "/var/run/"))
			return out == "open\n", out
		})
		forwarded, end := k.forward(t, "pod/client", 7000)
		says(on(m), "127.0.0.1 "+forwarded, "client")
		end()
	}
	everything()
	if out := inPod("id -u; cat /proc/self/uid_map; ip link add x type dummy 2>&1"); !strings.HasPrefix(out, "0\n") {
		t.Errorf("the user of a container: %s", out)
	}
	if out := k.ok(t, "logs machine"); !strings.Contains(out, "10.244.") {
		t.Errorf("a process of image host in a pod with its own network: %s", out)
	}
	if out := k.ok(t, "logs onhost"); !strings.Contains(out, "192.0.2.1") {
		t.Errorf("a container on the machine's network: %s", out)
	}
	// A user that does not exist here is refused by name, with the remedy. Who asks for the cluster's resolver where it
	// is not reached is told, and so is who gets a volume on disk instead of in memory.
	for _, want := range []string{"the id 1000 does not exist here", "dnsPolicy ClusterFirstWithHostNet has no effect",
		`emptyDir volume "m" is on disk instead of in memory`} {
		err := poll(patience, func() (bool, string) {
			out := k.ok(t, "get events")
			return strings.Contains(out, want), out
		})
		if err != nil {
			t.Error(err)
		}
	}
	// And what no pod can do is told of the node.
	limits := k.ok(t, "get events --field-selector involvedObject.kind=Node,reason=NotEnforced -o jsonpath={..message}")
	for _, want := range []string{"cannot ping", "below 1024", "nf_conntrack_max", "no user but root"} {
		if !strings.Contains(limits, want) {
			t.Errorf("the node's event does not name %q: %s", want, limits)
		}
	}

	u.now.kill(t)
	says(inPodOf(t, m, u.dir, "client"), ip+" 80", "web-") // the kernel carries it
	u.begin(t)
	k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
	everything()
	if now := k.ok(t, "get pods -l app=web -o jsonpath={.items[*].status.podIP}"); now != addresses {
		t.Errorf("the pods' addresses were %s and are %s after a restart", addresses, now)
	}

	u.down(t)
	if left := processesOf(t, m.uid); left != "" {
		t.Errorf("processes are left:\n%s", left)
	}
	if links := m.run(t, "ip", "-o", "link"); strings.Count(links, "\n") != 2 {
		t.Errorf("links are left:\n%s", links)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(u.home)) {
		t.Errorf("mounts are left, or cannot be read (%v):\n%s", err, mounts)
	}
	network := filepath.Join(u.dir, "nodes", nodeOf(t, u.dir), "network")
	// Which addresses pods have had is kept.
	if files, err := os.ReadDir(network); err != nil || len(files) != 1 || files[0].Name() != "addresses.json" {
		t.Errorf("files of the network are left: %v %v", files, err)
	}
}

// TestRootUserIDs gives the pods of a user who is not root more ids, as /etc/subuid does: processes can be any of
// them, files can belong to them, and what they have left is removed with the pod.
//
// spec: USER-1, CTR-6
func TestRootUserIDs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("newuidmap"); err != nil {
		t.Skip("newuidmap is not installed (make deps)")
	}
	const nobody = 65534 // newuidmap asks for a user with a name.
	m := newMachine(t)
	m.uid = nobody
	m.ids = filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(m.ids, fmt.Appendf(nil, "%d:1000000:65536\n", m.uid), 0o644); err != nil {
		t.Fatal(err)
	}
	u := m.imageCluster(t)
	u.begin(t)
	k := u.kubectl(t)
	if out, code := k.run(t, idsManifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "wait --for=condition=Ready pod/many pod/nobody --timeout=2m")
	k.until(t, "logs nobody", `^uid=1000 gid=1000 groups=1000\n$`)
	out, _ := k.run(t, "", "exec", "many", "--", "sh", "-c", "stat -c %u:%g /tmp/d /e/d; cat /proc/self/setgroups; id -G")
	if out != "101:102\n7:8\nallow\n0\n" {
		t.Errorf("the files and groups of a container: %q", out)
	}
	k.ok(t, "delete pod --all --timeout=2m")
	volumes := filepath.Join(u.dir, "nodes", nodeOf(t, u.dir), "pods-data")
	for _, dir := range []string{volumes, filepath.Join(u.images, "roots")} {
		err := poll(patience, func() (bool, string) {
			left, err := os.ReadDir(dir)
			return err == nil && len(left) == 0, fmt.Sprint(left, err)
		})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	u.down(t)
}

const idsManifest = `
apiVersion: v1
kind: Pod
metadata: {name: many}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/box:1
    command:
    - sh
    - -c
    - |
      for d in /tmp/d /e/d; do mkdir -p $d/below; touch $d/below/file; done
      chown -R 101:102 /tmp/d && chown -R 7:8 /e/d && chmod 700 /tmp/d /e/d && touch /tmp/done
      exec sleep 600
    readinessProbe: {exec: {command: [/bin/busybox, test, -f, /tmp/done]}, periodSeconds: 1}
    volumeMounts: [{name: e, mountPath: /e}]
  volumes: [{name: e, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: nobody}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/user:1', command: [sh, -c, 'id; exec sleep 600']}]
`

// forward begins a port-forward, and returns the port of the machine, and how to end it.
func (k *kubectl) forward(t *testing.T, to string, port int) (local string, end func()) {
	t.Helper()
	cmd := k.command(t, []string{"port-forward", to, fmt.Sprintf(":%d", port)})
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:34567 -> 7000
	_, after, ok := strings.Cut(line, "127.0.0.1:")
	if err != nil || !ok {
		t.Fatalf("port-forward: %q, %v", line, err)
	}
	local, _, _ = strings.Cut(after, " ")
	return local, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// inPodOf runs scripts in the network of a pod, without the server.
func inPodOf(t *testing.T, m *machine, dir, pod string) func(string) string {
	t.Helper()
	net := "--net=" + podNetwork(t, dir, pod)
	return func(script string) string {
		return m.run(t, "nsenter", net, "busybox", "sh", "-c", strings.ReplaceAll(script, "| nc", "| busybox nc"))
	}
}

// podNetwork is the file of a pod's network namespace, as long as the pod's shim runs.
func podNetwork(t *testing.T, dir, pod string) string {
	t.Helper()
	for _, pid := range holders(dir) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(name), "default/"+pod) {
			return fmt.Sprintf("/proc/%d/ns/net", pid)
		}
	}
	t.Fatalf("the shim of pod %s is not there", pod)
	return ""
}

// processesOf lists the processes of a user, but for those that nobody has waited for.
func processesOf(t *testing.T, uid int) string {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "stat=,pid=,args=", "-u", fmt.Sprint(uid)).Output() // it fails when there is none
	var left []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "Z") {
			left = append(left, line)
		}
	}
	return strings.Join(left, "")
}

// nodeOf is the name of the only node of a cluster.
func nodeOf(t *testing.T, dir string) string {
	t.Helper()
	nodes, err := os.ReadDir(filepath.Join(dir, "nodes"))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("the nodes are %v, %v", nodes, err)
	}
	return nodes[0].Name()
}

const userManifest = `
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
        command:
        - sh
        - -c
        - |
          printf '#!/bin/sh\nhostname\ngrep -h :1F90 /proc/net/tcp*\n' >/tmp/who
          chmod 755 /tmp/who
          nc -ll -p 8080 -e /tmp/who
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
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
  volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
  containers:
  - name: client
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 7000 -e hostname']
    volumeMounts: [{name: m, mountPath: /m}]
---
apiVersion: v1
kind: Pod
metadata: {name: machine}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: host, command: [sh, -c, 'ip -o addr; exec sleep 600']}]
---
apiVersion: v1
kind: Pod
metadata: {name: onhost}
spec:
  hostNetwork: true
  hostIPC: true
  dnsPolicy: ClusterFirstWithHostNet
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/box:1', command: [sh, -c, 'ip -o addr; exec sleep 600']}]
---
apiVersion: v1
kind: Pod
metadata: {name: nobody}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers: [{name: c, image: 'localhost/user:1'}]
`
