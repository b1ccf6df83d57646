package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
)

// delegatedVariable names the group that root has given to the user of the test below.
const delegatedVariable = "MONOPLANE_TEST_DELEGATED"

// pidsVariable names the group of cgroup v1 that the user has been given, if any.
const pidsVariable = "MONOPLANE_TEST_DELEGATED_PIDS"

// Where a user who is not root has been given a part of cgroup2, pods have groups there: all that a container has
// started ends with it, and limits hold for which there are controllers. The others are named. Nothing is left there.
// Some machines have all controllers in cgroup2, others some or all of them in cgroup v1.
//
// spec: CTR-10, TERM-4
func TestRootDelegatedGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it takes root to delegate a cgroup")
	}
	withImages(t) // Or it is skipped.
	pod := cgroup.Discover(fmt.Sprint("/mp-test-delegated-", os.Getpid())).Pod("x").Unified
	if pod == "" {
		t.Skip("there is no cgroup2 here")
	}
	dir := filepath.Dir(pod)
	t.Cleanup(func() {
		for _, d := range []string{filepath.Join(dir, cgroup.Server), dir} {
			if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	// It fails where the controller is elsewhere: then it is in no delegated group either.
	_ = os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+hugetlb"), 0)
	delegate(t, dir, "cgroup.procs", "cgroup.subtree_control", "cgroup.threads")
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := asSomeUser(t, "-test.run=^TestDelegatedToUser$")
	cmd.Env = append(cmd.Env, delegatedVariable+"="+dir)
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	var out []byte
	inPIDs(t, func(v1 string) {
		cmd.Env = append(cmd.Env, pidsVariable+"="+v1)
		out, err = cmd.CombinedOutput()
	})
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDelegatedToUser") {
		t.Errorf("%v\n%s", err, out)
	}
}

// delegate gives a group to the user.
func delegate(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range append(files, "") {
		if err := os.Chown(filepath.Join(dir, name), someUser, someUser); err != nil {
			t.Fatal(err)
		}
	}
}

// inPIDs calls run with this thread, and so what it starts, in a group of cgroup v1 that is the user's, if there is
// one that counts processes; empty otherwise.
func inPIDs(t *testing.T, run func(dir string)) {
	t.Helper()
	const all = "/sys/fs/cgroup/pids"
	if !exists(filepath.Join(all, "tasks")) {
		run("")
		return
	}
	dir := filepath.Join(all, fmt.Sprint("mp-test-delegated-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	delegate(t, dir, "tasks", "cgroup.procs")
	defer func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	was := all
	for line := range strings.Lines(string(own)) {
		if _, path, ok := strings.Cut(line, ":pids:"); ok {
			was = filepath.Join(all, strings.TrimSpace(path))
		}
	}
	join := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	join(dir)
	run(dir)
	join(was)
}

// TestDelegatedToUser is the user's part of TestRootDelegatedGroup.
func TestDelegatedToUser(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(delegatedVariable)
	if dir == "" {
		t.Skip("TestRootDelegatedGroup runs this")
	}
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	n := newNode(t, withImages(t))
	controllers := strings.Fields(read(filepath.Join(dir, "cgroup.controllers")))
	t.Logf("in cgroup2 are %s", controllers)
	for _, name := range []string{"first", "after a restart"} {
		sb := n.sandbox(name)
		config := ofImage(containerConfig("c", "/bin/sh", "-c",
			"setsid sleep 1000 & (setsid setsid sleep 1001 &); trap '' TERM; sleep 1002 & wait"))
		config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20,
			Unified:        map[string]string{"pids.max": "40"},
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 * hugePage}}}
		id := n.run(sb, config)
		group := filepath.Dir(filepath.Dir(n.containerGroup(id)))
		if group != dir {
			t.Errorf("%s: the group of the pod is in %s, want %s", name, group, dir)
		}
		processes := func() int { return len(strings.Fields(read(filepath.Join(n.containerGroup(id), "cgroup.procs")))) }
		eventually(t, "the container has its processes", func() bool { return processes() == 4 })
		got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"/bin/sh", "-c", "setsid sleep 1003 </dev/null >/dev/null 2>&1 & cat /proc/self/cgroup"}})
		want := "0::" + strings.TrimPrefix(n.containerGroup(id), filepath.Dir(dir)) + "\n"
		if exists(filepath.Join(cgroups2, "cgroup.controllers")) {
			want = "0::/\n" // See TestRootImageOwnCgroup.
		}
		if err != nil || !strings.Contains(string(got.GetStdout()), want) {
			t.Errorf("%s: a command in the container is in %s, want %s: %v", name, got.GetStdout(), want, err)
		}
		w := n.warnings(id)
		for _, c := range []struct{ limit, controller, file, want string }{
			{"the memory limit", "memory", "memory.max", fmt.Sprint(64 << 20)},
			{"the limit of 2MB huge pages", "hugetlb", "hugetlb.2MB.max", fmt.Sprint(2 * hugePage)},
		} {
			there := slices.Contains(controllers, c.controller)
			if strings.Contains(w, c.limit+" is not enforced: ") == there {
				t.Errorf("%s: the warnings are %s", name, w)
			}
			if !there {
				continue
			}
			if got := read(filepath.Join(n.containerGroup(id), c.file)); got != c.want {
				t.Errorf("%s: %s is %s, want %s", name, c.file, got, c.want)
			}
		}
		if v1 := os.Getenv(pidsVariable); v1 != "" {
			group := filepath.Join(v1, strings.TrimPrefix(n.containerGroup(id), dir))
			if got := read(filepath.Join(group, "pids.max")); got != "40" {
				t.Errorf("%s: the limit of processes is %s", name, got)
			}
			// The helper's library has made a group of its own below it.
			eventually(t, "all processes are counted", func() bool { return read(filepath.Join(group, "pids.current")) == "5" })
		}
		if len(controllers) > 0 {
			if got := read(filepath.Join(dir, cgroup.Server, "cgroup.procs")); got != fmt.Sprint(os.Getpid()) {
				t.Errorf("%s: the group of the server has %q", name, got)
			}
		}
		n.stop(id, 0)
		if exists(n.containerGroup(id)) {
			t.Errorf("%s: the group of a container that has ended is left", name)
		}
		n.reopen()
	}
	n.removeAll()
	left, err := filepath.Glob(filepath.Join(dir, "monoplane-*"))
	left = slices.DeleteFunc(left, func(d string) bool { return filepath.Base(d) == cgroup.Server })
	if err != nil || len(left) > 0 {
		t.Errorf("groups are left: %v %v", left, err)
	}
}

// containerGroup is a container's directory in cgroup2.
func (n *node) containerGroup(id string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.containers[id].rec.group.Unified
}
