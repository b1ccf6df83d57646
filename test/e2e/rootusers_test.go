//go:build rootonly

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/test/containerd"
)

// TestRootUsersOfPods runs pods with users of their own (hostUsers: false) of images: they have different ids of the
// machine, their volumes are theirs, they are reached and reach others by the pod network, and kubectl works with
// them, also after the server was killed. Nothing is left of them.
//
// spec: USER-1, USER-2, NET-1, VOL-1, SAFE-5
func TestRootUsersOfPods(t *testing.T) {
	t.Parallel()
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
	k.on(t, m)
	volume := t.TempDir()
	manifest := strings.ReplaceAll(usersManifest, "HOSTPATH", volume)
	if out, code := k.run(t, manifest, "apply", "-f", "-"); code != 0 {
		t.Fatal(out)
	}
	k.ok(t, "wait --for=condition=Ready pod/one pod/two pod/plain --timeout=2m")
	inPod := func(pod, script string) string {
		t.Helper()
		out, _ := k.run(t, "", "exec", pod, "-c", pod, "--", "sh", "-c", script)
		return out
	}
	firsts := map[string]bool{}
	for _, pod := range []string{"one", "two"} {
		ids := strings.Fields(inPod(pod, "cat /proc/self/uid_map"))
		if len(ids) != 3 || ids[0] != "0" || ids[1] == "0" || ids[2] != "65536" || firsts[ids[1]] {
			t.Errorf("pod %s has the ids %v", pod, ids)
		} else {
			firsts[ids[1]] = true
		}
	}
	got := inPod("one", `id -u
cd /v/secret && cat word && stat -Lc '%u %g %a' word
stat -Lc %u /v/config/word /v/memory /v/disk /v/host /etc/hosts /etc/resolv.conf | uniq
cat /var/run/secrets/kubernetes.io/serviceaccount/token >/dev/null && echo token
for d in memory disk host; do echo $d >/v/$d/made && chown 33:33 /v/$d/made && stat -c %u /v/$d/made; done | uniq
echo word >/dev/stdout; echo 127.0.0.9 extra >>/etc/hosts && echo hosts`)
	if want := "0\ns3cret\n0 65533 440\n0\ntoken\n33\nword\nhosts\n"; got != want {
		t.Errorf("the pod says\n%s\nand not\n%s", got, want)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(volume, "made"), &st); err != nil || st.Uid != 33 {
		t.Errorf("what the pod has made belongs on the machine to %d: %v", st.Uid, err)
	}
	reach := func() {
		t.Helper()
		for from, to := range map[string]string{"one": "two", "two": "plain", "plain": "one"} {
			ip := k.ok(t, "get pod "+to+" -o jsonpath={.status.podIP}")
			if err := poll(patience, func() (bool, string) {
				out := inPod(from, "echo | nc -w 5 "+ip+" 8080")
				return out == to+"\n", out
			}); err != nil {
				t.Errorf("%s does not reach %s: %v", from, to, err)
			}
		}
	}
	reach()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("copied"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := k.run(t, "", "cp", file, "one:/tmp/file", "-c", "one")
	if code != 0 || inPod("one", "cat /tmp/file") != "copied" {
		t.Errorf("cp: %s", out)
	}
	if got := k.ok(t, "logs one -c one --tail=1"); got != "ready\n" {
		t.Errorf("logs: %q", got)
	}
	// A container that ends runs again, as the same users.
	inPod("two", "kill -9 -1; kill 1")
	before := inPod("one", "cat /proc/self/uid_map")
	c.kill(t)
	c = begin()
	k.ok(t, "wait --for=condition=Ready pod/one pod/two --timeout=2m")
	if after := inPod("one", "cat /proc/self/uid_map"); after != before {
		t.Errorf("the ids were %q and are %q after a restart", before, after)
	}
	reach()
	k.ok(t, "delete pod one two plain --timeout=2m")
	mounts := m.run(t, "cat", "/proc/self/mountinfo")
	if strings.Contains(mounts, dir) || strings.Contains(mounts, images) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	if out, err := exec.Command(monoplane, "down", "--data-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	c.waitExit(t)
}

const usersManifest = `
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {word: "s3cret\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {word: "public"}
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 65533}
  volumes:
  - {name: secret, secret: {secretName: s, defaultMode: 0400}}
  - {name: config, configMap: {name: c}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: disk, emptyDir: {}}
  - {name: host, hostPath: {path: HOSTPATH}}
  containers:
  - name: one
    image: localhost/box:1
    command: [sh, -c, 'echo ready; while :; do nc -l -p 8080 -e hostname; done']
    volumeMounts:
    - {name: secret, mountPath: /v/secret}
    - {name: config, mountPath: /v/config}
    - {name: memory, mountPath: /v/memory}
    - {name: disk, mountPath: /v/disk}
    - {name: host, mountPath: /v/host}
---
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  hostUsers: false
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: two
    image: localhost/box:1
    command: [sh, -c, 'while :; do nc -l -p 8080 -e hostname; done']
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: plain
    image: localhost/box:1
    command: [sh, -c, 'while :; do nc -l -p 8080 -e hostname; done']
`
