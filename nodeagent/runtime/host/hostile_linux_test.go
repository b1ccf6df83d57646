package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// A container that freezes its own cgroup2 gets its stop signal and its grace; one that freezes it again is killed.
//
// spec: TERM-1, TERM-4
func TestFrozenCgroup(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	sb := n.sandbox("frozen")
	freeze := func(name, trap string) (id string, pid int) {
		file := filepath.Join(n.dir, name)
		id = n.run(sb, script(name, "trap '"+trap+"' TERM; echo $$ > "+file+"; while :; do sleep 0.02; done"))
		pid = readPID(t, file)
		group := n.containers[id].rec.group.Unified
		if err := os.WriteFile(group+"/cgroup.freeze", []byte("1"), 0); err != nil {
			t.Skip(err)
		}
		eventually(t, "the group is frozen", func() bool {
			b, err := os.ReadFile(group + "/cgroup.events")
			return err == nil && strings.Contains(string(b), "frozen 1")
		})
		return id, pid
	}
	id, pid := freeze("polite", "exit 7")
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 7 || alive(pid) {
		t.Errorf("%v", st)
	}
	id, pid = freeze("stubborn", "")
	got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}})
	if err != nil || got.GetExitCode() != 0 {
		t.Errorf("exec in a frozen container: %v %v", got, err)
	}
	n.stop(id, 0)
	if st := n.status(id); st.GetExitCode() != 137 || alive(pid) {
		t.Errorf("%v", st)
	}
}

// A pod that is frozen with its shim is ended by the runtime.
//
// spec: TERM-4, SAFE-6
func TestFrozenPod(t *testing.T) {
	t.Parallel()
	n := newNode(t, short(400*time.Millisecond, never))
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	sb := n.sandbox("frozen")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	pid, shimPID := n.pid(id), n.shimPID(sb)
	group := n.sandboxOf(sb).rec.group.Unified
	if err := os.WriteFile(group+"/cgroup.freeze", []byte("1"), 0); err != nil {
		t.Skip(err)
	}
	_, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
	t.Log("the stop said: ", err)
	n.wait(id)
	eventually(t, "the sandbox is gone", func() bool { return n.sandboxOf(sb).isGone() })
	if alive(pid) || alive(shimPID) {
		t.Error("something is alive")
	}
}

// freezerGroup makes a group of the cgroup v1 freezer, and removes it with the test.
func freezerGroup(t *testing.T) string {
	t.Helper()
	const top = "/sys/fs/cgroup/freezer"
	dir, err := os.MkdirTemp(top, "monoplane-test-")
	if err != nil {
		t.Skip("no freezer of cgroup v1: ", err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(dir+"/freezer.state", []byte("THAWED"), 0)
		eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil })
	})
	if !exists(dir + "/freezer.state") {
		t.Skip("no freezer of cgroup v1")
	}
	return dir
}

// A process that sits in a frozen group of cgroup v1, where it cannot die, is killed all the same, and so is the shim.
//
// spec: TERM-4
func TestFrozenByCgroupV1(t *testing.T) {
	t.Parallel()
	group := freezerGroup(t)
	n := newNode(t, short(6*time.Second, never)) // a busy machine ends a container in half of it
	sb := n.sandbox("frozen")
	freeze := func(pid int) {
		t.Helper()
		if err := os.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(group+"/freezer.state", []byte("FROZEN"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the process is frozen", func() bool {
			p, err := sys.Stat(pid)
			return err == nil && p.State == 'D'
		})
	}
	file := filepath.Join(n.dir, "daemon")
	id := n.run(sb, script("c", "(setsid sleep 1000 & echo $! > "+file+"); exec sleep 1000"))
	daemon, pid := readPID(t, file), n.pid(id)
	freeze(daemon)
	freeze(pid)
	n.stop(id, 0)
	if alive(daemon) || alive(pid) {
		t.Error("something is alive")
	}
	id = n.run(sb, containerConfig("other", "sleep", "1000"))
	pid, shimPID := n.pid(id), n.shimPID(sb)
	freeze(shimPID)
	_, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
	t.Log("the stop said: ", err)
	n.wait(id)
	eventually(t, "the sandbox is gone", func() bool { return n.sandboxOf(sb).isGone() })
	if alive(pid) || alive(shimPID) {
		t.Error("something is alive")
	}
}

// Processes that leave for other cgroups, of both versions, end with their container.
//
// spec: TERM-4
func TestEscapeToAnotherCgroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root moves between cgroups as it likes")
	}
	withAndWithout(t, func(t *testing.T, n *node) {
		elsewhere := []string{freezerGroup(t)}
		if unified := n.cgroups.Pod("x").Unified; unified != "" {
			dir, err := os.MkdirTemp(filepath.Dir(unified), "monoplane-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil }) })
			elsewhere = append(elsewhere, dir)
		}
		file := filepath.Join(n.dir, "daemon")
		text := "(setsid sh -c 'echo $$ > " + file + ".1; for g in " + strings.Join(elsewhere, " ") +
			"; do echo $$ > $g/cgroup.procs; done; mv " + file + ".1 " + file + "; exec sleep 1000' &); exec sleep 1000"
		sb := n.sandbox("escape")
		other := n.run(sb, containerConfig("other", "sleep", "1000"))
		id := n.run(sb, script("c", text))
		daemon := readPID(t, file)
		n.stop(id, 0)
		if alive(daemon) {
			t.Error("the daemon is alive")
		}
		if n.status(other).GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Error("the other container has ended too")
		}
	})
}

// tracerHelper attaches to all threads of the process PID, as a debugger does, which stops them, and never lets go.
func tracerHelper() int {
	runtime.LockOSThread()
	pid, _ := strconv.Atoi(os.Getenv("PID"))
	if pid == 0 {
		pid = os.Getppid()
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if e := syscall.PtraceAttach(tid); e != nil {
			err = e
		}
	}
	_ = os.WriteFile(os.Getenv("FILE"), fmt.Appendln(nil, os.Getpid(), err), 0o600)
	for {
		time.Sleep(time.Hour)
	}
}

// A container that traces its shim, and so stops it for good, ends with its pod.
//
// spec: TERM-4, SAFE-6
func TestContainerTracesItsShim(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("tracer")
		file := filepath.Join(n.dir, "tracer")
		config := containerConfig("c", testBinary(t))
		config.Envs = []*runtimeapi.KeyValue{{Key: helperVariable, Value: []byte("tracer")},
			{Key: "FILE", Value: []byte(file)}}
		id := n.create(sb, config)
		started := make(chan struct{})
		go func() {
			defer close(started)
			_ = n.startWithin(id, patience) // The shim may be stopped before it can answer.
		}()
		pid, shimPID := readPID(t, file), n.shimPID(sb)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the tracer: %s", b)
		_, err = n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 0})
		t.Log("the stop said: ", err)
		n.wait(id)
		if alive(pid) {
			t.Error("the tracer is alive")
		}
		_, err = n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
		t.Log("the stop of the pod said: ", err)
		eventually(t, "the sandbox is gone", func() bool { return n.sandboxOf(sb).isGone() })
		if alive(shimPID) {
			t.Error("the shim is alive")
		}
		<-started
	}, short(time.Second, never))
}

// A container that kills its shim is killed with its pod.
//
// spec: TERM-4
func TestContainerKillsItsShim(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("killer")
		file := filepath.Join(n.dir, "daemon")
		other := n.run(sb, containerConfig("other", "sleep", "1000"))
		now := filepath.Join(n.dir, "now") // Before, the answer that it was started would be lost with the shim.
		id := n.run(sb, script("c", "shim=$PPID; setsid sh -c 'echo $$ > "+file+"; exec sleep 1000' & while [ ! -e "+now+
			" ]; do sleep 0.01; done; kill -KILL $shim; exec sleep 1000"))
		daemon, pids := readPID(t, file), []int{n.pid(id), n.pid(other)}
		if err := os.WriteFile(now, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{id, other} {
			if st := n.wait(c); st.GetReason() != "ContainerStatusUnknown" {
				t.Errorf("%v", st)
			}
		}
		for _, pid := range append(pids, daemon) {
			if alive(pid) {
				t.Errorf("%d is alive", pid)
			}
		}
	})
}

// A container that holds mounts busy, its own and those of its volumes, lets go of them when it ends.
//
// spec: TERM-4
func TestMountsAreLetGo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir := filepath.Join(t.TempDir(), "tmpfs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("nothing can be mounted: ", err)
	}
	unmount := func() error { return syscall.Unmount(dir, 0) }
	t.Cleanup(func() { _ = unmount() })
	file := filepath.Join(n.dir, "daemon")
	id := n.run(n.sandbox("busy"), script("c", "cd /monoplane-x; exec 9> held; (setsid sh -c 'echo $$ > "+file+
		"; exec sleep 1000' &); exec sleep 1000", mount(dir, "/monoplane-x")))
	readPID(t, file)
	n.stop(id, 0)
	if err := unmount(); err != nil {
		t.Errorf("the volume is busy: %v", err)
	}
}

// A fork bomb is bounded by the pids limit, and ends like anything else.
//
// spec: TERM-4
func TestForkBomb(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("bomb")
	file := filepath.Join(n.dir, "bomb.sh")
	if err := os.WriteFile(file, []byte("while :; do /bin/sh "+file+" & sleep 0.01; done\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := limited(script("c", "/bin/sh "+file+" 2>/dev/null & exec sleep 1000"), 0)
	config.Linux.Resources.CpuQuota = 0
	id := n.run(sb, config)
	if w := n.warnings(id); strings.Contains(w, "pids limit") {
		t.Skip("no pids limit here: ", w)
	}
	group := n.containers[id].rec.group
	eventually(t, "the bomb has met its limit", func() bool {
		for _, dir := range append(group.V1, group.Unified) {
			b, err := os.ReadFile(dir + "/pids.events")
			if f := strings.Fields(string(b)); err == nil && len(f) > 1 && f[0] == "max" && f[1] != "0" {
				return true
			}
		}
		return false
	})
	n.stop(id, 0)
	if out, err := exec.Command("pgrep", "-f", file).Output(); err == nil {
		t.Errorf("left: %s", out)
	}
}
