//go:build rootonly

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// unified is where systemd mounts cgroup2 on a machine that has nothing else.
const unified = "/sys/fs/cgroup"

// withSystemd skips a test on a machine whose cgroups are not systemd's, or partly of cgroup v1.
func withSystemd(t *testing.T) {
	t.Helper()
	for _, file := range []string{"/run/systemd/system", filepath.Join(unified, "cgroup.controllers")} {
		if _, err := os.Stat(file); err != nil {
			t.Skip("no machine of systemd with cgroup2 alone (make test-vm has one): ", err)
		}
	}
}

// loginUser returns a user for whom systemd has a manager of its own.
func loginUser(t *testing.T) int {
	t.Helper()
	withSystemd(t)
	name := os.Getenv("MONOPLANE_TEST_LOGIN")
	if name == "" {
		t.Skip("MONOPLANE_TEST_LOGIN names no user who may be logged in (make test-vm does)")
	}
	who, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	if out, err := exec.Command("systemctl", "start", "user@"+who.Uid).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return uid
}

// limitedGroups are the cgroups of containers below a pattern of directories that have both limits of the tests' pod.
func limitedGroups(t *testing.T, pattern string) (groups []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(unified, pattern, "monoplane-*", "*", "memory.max"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		memory, _ := os.ReadFile(file) // It goes with its container.
		cpu, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cpu.max"))
		if string(memory) == "67108864\n" && string(cpu) == "50000 100000\n" {
			groups = append(groups, filepath.Dir(file))
		}
	}
	return groups
}

// limitsHold shows that a pod has the limits that it asks for, below a pattern of directories, and a container that
// wants more memory than it may have is killed for it.
func (u *imageCluster) limitsHold(t *testing.T, pattern string) {
	t.Helper()
	k := u.kubectl(t)
	u.apply(t, limitedManifest)
	k.ok(t, "wait --for=condition=Ready pod/limited --timeout=300s")
	if got := limitedGroups(t, pattern); len(got) != 1 {
		t.Errorf("the groups with the pod's limits below %s are %v", pattern, got)
	}
	eventually(t, "a container that wants too much memory is killed", func() (bool, string) {
		out := k.ok(t, "get pod hog -o jsonpath={.status.containerStatuses[0].state.terminated.reason}")
		return out == "OOMKilled", out
	})
	const notEnforced = "get events --field-selector=reason=NotEnforced,involvedObject.kind=Pod " +
		"-o jsonpath={.items[*].message}"
	if out := k.ok(t, notEnforced); out != "" {
		t.Errorf("limits are said not to hold:\n%s", out)
	}
}

const limitedManifest = `
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/box:1
    command: [sleep, '3600']
    resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: 10m, memory: 1Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: localhost/box:1
    command: [sh, -c, 'x=0123456789abcdef; while :; do x="$x$x"; done']
    resources: {limits: {cpu: 400m, memory: 16Mi}, requests: {cpu: 10m, memory: 1Mi}}
`

// Where a user's systemd delegates a scope, limits of memory and processor time hold in it without root. A server
// that is killed finds its pods in the scope of the one before, and both scopes end with what is in them.
//
// spec: CTR-10, CTR-9
func TestRootUserDelegatedBySystemd(t *testing.T) {
	uid := loginUser(t)
	m := newMachine(t)
	m.uid, m.delegated = uid, true
	u := m.imageCluster(t)
	u.begin(t)
	manager := fmt.Sprintf("user.slice/user-%d.slice/user@%[1]d.service", uid)
	scopes := manager + "/app.slice/run-*.scope"
	u.limitsHold(t, scopes)
	first := limitedGroups(t, scopes)

	u.now.kill(t)
	u.begin(t)
	k := u.kubectl(t)
	k.ok(t, "wait --for=condition=Ready pod/limited --timeout=300s")
	if now := limitedGroups(t, scopes); len(first) != 1 || len(now) != 1 || now[0] != first[0] {
		t.Errorf("the pod was in %v, and is in %v", first, now)
	}
	k.ok(t, "delete pod --all --timeout=300s")
	u.limitsHold(t, scopes)
	if now := limitedGroups(t, scopes); len(now) != 1 || len(first) != 1 || filepath.Dir(filepath.Dir(now[0])) ==
		filepath.Dir(filepath.Dir(first[0])) {
		t.Errorf("the new server has its pod in %v, as the old one in %v", now, first)
	}

	u.down(t)
	eventually(t, "no scope is left", func() (bool, string) {
		left, err := filepath.Glob(filepath.Join(unified, scopes))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
}

// The pods of root have every controller of cgroup2 though systemd has no use for it, and keep their limits when
// systemd looks at its own groups anew.
//
// spec: CTR-10
func TestRootLimitsBesideSystemd(t *testing.T) {
	withSystemd(t)
	groups := func() []string {
		found, err := filepath.Glob(filepath.Join(unified, "monoplane", "monoplane-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := groups()
	m := newMachine(t)
	u := m.imageCluster(t)
	u.begin(t)
	u.limitsHold(t, "monoplane")
	for _, args := range []string{"systemctl daemon-reload", "systemd-run --wait --quiet -p CPUQuota=50% true",
		"systemctl daemon-reexec"} {
		words := strings.Fields(args)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
		if got := limitedGroups(t, "monoplane"); len(got) != 1 {
			t.Errorf("after %s the groups with the pod's limits are %v", args, got)
		}
	}
	u.down(t)
	if left := groups(); len(left) > len(before) {
		t.Errorf("groups are left: %v, after %v", left, before)
	}
}

// Where Debian's setting, or the kernel's, forbids users to make namespaces, `monoplane up` ends with its name, and
// runs what needs none where it may choose. Nothing is left of the attempt.
//
// spec: CLI-2, CLI-4
func TestRootUserWithoutNamespacesOfMachine(t *testing.T) {
	for _, setting := range []string{"kernel.unprivileged_userns_clone", "user.max_user_namespaces"} {
		t.Run(setting, func(t *testing.T) {
			uid := loginUser(t)
			file := "/proc/sys/" + strings.ReplaceAll(setting, ".", "/")
			was, err := os.ReadFile(file)
			if err != nil {
				t.Skip(err)
			}
			if err := os.WriteFile(file, []byte("0"), 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.WriteFile(file, bytes.TrimSpace(was), 0); err != nil {
					t.Error(err)
				}
			})
			m := newMachine(t)
			m.uid = uid
			u := m.imageCluster(t)
			refused(t, runProgram(t, nil, u.monoplane, upArgs(u.dir, "--runtime", "oci", "--image-dir", u.images)...),
				"--runtime=oci: containers cannot be made here: ", setting)
			if left := processesOf(t, uid); strings.Contains(left, u.home) {
				t.Errorf("processes are left:\n%s", left)
			}
			u.now, err = start(u.monoplane, u.dir, "--runtime", "auto", "--image-dir", u.images)
			if err != nil {
				t.Fatal(err)
			}
			if out := u.now.stderr.String(); !strings.Contains(out, `Pods can have image "host" only`) ||
				!strings.Contains(out, setting) {
				t.Errorf("it is not said why images cannot be run: %q", out)
			}
			k := u.kubectl(t)
			k.ok(t, "run hello --image=host --command -- sleep 600")
			k.ok(t, "wait --for=condition=Ready pod/hello --timeout=2m")
			u.down(t)
		})
	}
}
