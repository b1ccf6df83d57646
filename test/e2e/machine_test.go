package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A manifest in the node's directory is a pod; an edit restarts it, and kubectl shows it, with what it uses. A pod
// that exceeds its limit of local storage is evicted. spec: STATIC-1, QOS-2, DISR-6
func TestMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "node")
	k := c.kubectl(t, "default")
	path := filepath.Join(c.dir, "nodes/node/manifests/web.yaml")
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: host, command: [sh, -c, "echo first; exec sleep 600"]}
`
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(manifest)
	t.Cleanup(func() { _ = os.Remove(path) })
	k.until(t, "get pod web-node", `web-node +1/1 +Running`)
	k.until(t, "logs web-node", `^first\n$`)
	k.ok(t, "delete pod web-node --wait=false")
	k.until(t, "get pod web-node", `web-node +1/1 +Running`)
	write(strings.Replace(manifest, "first", "second", 1))
	k.until(t, "logs web-node", `^second\n$`)

	k.until(t, "top nodes", `(?m)^node +\d+m +\d+% +\d+Mi +\d+%`)
	k.until(t, "top pods", `(?m)^web-node +\d+m +\d+Mi`)

	for path, want := range map[string]string{
		"healthz": `^ok$`, "pods": `"name":"web-node"`, "metrics": `(?m)^kubelet_running_pods 1$`,
		"stats/summary":    `(?s)"nodeName": "node".*"usageNanoCores": \d.*"name": "web-node".*"name": "main".*"logs": {`,
		"metrics/resource": `(?m)^container_start_time_seconds{container="main",namespace="default",pod="web-node"} \d`,
	} {
		k.until(t, "get --raw /api/v1/nodes/node/proxy/"+path, want)
	}

	out, code := k.run(t, `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  containers:
  - name: main
    image: host
    command: [sh, -c, "head -c 2000000 /dev/zero | tr '\\0' x | fold -w 100; exec sleep 600"]
    resources: {limits: {ephemeral-storage: 1Mi}}
`, "apply", "-f", "-")
	if code != 0 {
		t.Fatal(out)
	}
	k.until(t, "get pod greedy -o jsonpath={.status.reason}:{.status.message}",
		`^Evicted:Pod ephemeral local storage usage exceeds the total limit of containers 1Mi\. $`)

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	k.until(t, "get pods", `^NAME.*\ngreedy.*\n$`)
}

// With --seccomp-default a container that names no seccomp profile has the runtime's; without the flag it has none, as
// has one that wants none, or is privileged. spec: SEC-1
func TestSeccompDefault(t *testing.T) {
	t.Parallel()
	const unconfined, privileged = "{seccompProfile: {type: Unconfined}}", "{privileged: true}"
	for _, c := range []struct {
		flags []string
		want  map[string]string // by what the container asks for
	}{
		{nil, map[string]string{"{}": "0"}},
		{[]string{"--seccomp-default"}, map[string]string{"{}": "2", unconfined: "0", privileged: "0"}},
	} {
		k := newCluster(t, c.flags...).kubectl(t, "default")
		for asked, want := range c.want {
			if asked == privileged && os.Geteuid() != 0 {
				continue // It is root's.
			}
			out, code := k.run(t, `
apiVersion: v1
kind: Pod
metadata: {name: main}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: host, command: [grep, "^Seccomp:", /proc/self/status], securityContext: `+asked+`}
`, "apply", "-f", "-")
			if code != 0 {
				t.Fatal(out)
			}
			k.until(t, "get pod main -o jsonpath={.status.phase}", `^Succeeded$`)
			k.until(t, "logs main", `^Seccomp:\t`+want+`\n$`)
			k.ok(t, "delete pod main")
		}
	}
}

// A pod that sets what the node does not allow fails and says so; one that sets what it allows is for the runtime to
// judge, which cannot set any here. What would be the machine's cannot be named. spec: SEC-1, LIFE-12
func TestAllowedUnsafeSysctls(t *testing.T) {
	t.Parallel()
	if _, err := start(binary(t, "monoplane"), shortDir(t), "--allowed-unsafe-sysctls", "kernel.msg*,vm.*"); err == nil ||
		!strings.Contains(err.Error(), `the sysctl "vm.*" cannot be allowed: it is not known to be a pod's own`) {
		t.Errorf("with the machine's: %v", err)
	}
	k := newCluster(t, "--allowed-unsafe-sysctls", "kernel.msg*,net.core.somaxconn").kubectl(t, "default")
	for name, sysctl := range map[string]string{"safe": "kernel.shm_rmid_forced", "named": "net/core/somaxconn",
		"begins": "kernel.msgmax", "other": "kernel.sem"} {
		if out, code := k.run(t, `
apiVersion: v1
kind: Pod
metadata: {name: `+name+`}
spec:
  securityContext: {sysctls: [{name: `+sysctl+`, value: "1"}]}
  containers:
  - {name: main, image: host, command: [sleep, "600"]}
`, "apply", "-f", "-"); code != 0 {
			t.Fatal(out)
		}
	}
	const forbidden = `Pod was rejected: forbidden sysctl: "kernel.sem" not allowlisted`
	k.until(t, "get pod other -o jsonpath={.status.phase}:{.status.reason}:{.status.message}",
		"^Failed:SysctlForbidden:"+forbidden+"$")
	k.until(t, "events --for pod/other", "Warning +SysctlForbidden +Pod/other +"+forbidden)
	for _, name := range []string{"safe", "named", "begins"} {
		k.until(t, "get pod "+name+" -o jsonpath={.status.reason}:{.status.message}",
			"^FailedCreatePodSandBox:.*the host runtime cannot set sysctls")
	}
}

// SIGTERM to a server that was told how long a shutdown takes ends the pods for good. spec: DISR-4
func TestNodeShutdown(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := startIn(t, dir, "--node-name", "node", "--shutdown-grace-period", "20s")
	k := c.kubectl(t, "default")
	k.ok(t, "run web --image=host --command -- sleep 600")
	k.until(t, "get pod web", `web +1/1 +Running`)
	c.signal(t, syscall.SIGTERM)
	if code := c.waitExit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	k = startIn(t, dir, "--node-name", "node").kubectl(t, "default")
	k.until(t, "get pod web -o jsonpath={.status.reason}:{.status.message}",
		`^Terminated:Pod was terminated in response to imminent node shutdown\.$`)
}
