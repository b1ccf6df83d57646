package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// What can never succeed is the caller's to mend, and says so.
func TestNamesThatAreTooLong(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	onlyHost(t, "libcontainer executes the command last")
	n := newNode(t)
	long := strings.Repeat("x", 300)
	config := sandboxConfig(n, "long")
	config.LogDirectory = filepath.Join(n.logs, long)
	_, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a log directory of 300 bytes: %v", err)
	}
	if left, _ := os.ReadDir(n.cfg.ClaimDir); len(left) > 0 {
		t.Errorf("claims are left: %v", left)
	}
	config = sandboxConfig(n, long)
	config.LogDirectory, config.Metadata.Namespace = "", strings.Repeat("n", 1<<17)
	config.Metadata.Uid = fmt.Sprint(os.Getpid(), long) // No uid runs twice on a machine.
	resp, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatalf("names that no file carries: %v", err)
	}
	sb := resp.GetPodSandboxId()
	c := containerConfig("c", "/bin/true")
	c.Metadata.Name = long // Without a log directory it is no part of a path.
	if st := n.wait(n.run(sb, c)); st.GetExitCode() != 0 {
		t.Errorf("status %v", st)
	}
	sb = n.sandbox("short")
	c = containerConfig("c", "/bin/true")
	c.LogPath = long + "/0.log"
	_, err = n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: c})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a log path of 300 bytes: %v", err)
	}
	c.LogPath = long
	if err := n.start(n.create(sb, c)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a log of 300 bytes: %v", err)
	}
	c = containerConfig("big", "/bin/true")
	for i := range 50 {
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: fmt.Sprint("BIG", i), Value: bytes.Repeat([]byte("x"), 100<<10)})
	}
	_, err = n.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: c})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("5 MB of environment: %v", err)
	}
	if code := status.Code(makingFailed("x", shimwire.ErrTooLarge)); code != codes.InvalidArgument {
		t.Errorf("%s", code)
	}
}

// A container whose record is larger than a megabyte survives a restart as every other one.
func TestLargeRecord(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	c := containerConfig("big", "sleep", "1000")
	for i := range 14 {
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: fmt.Sprint("BIG", i), Value: bytes.Repeat([]byte("x"), 100<<10)})
	}
	id := n.run(n.sandbox("big"), c)
	pid := n.pid(id)
	n.reopen()
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || !alive(pid) {
		t.Errorf("status %v", st)
	}
}

// setFiles sets the number of descriptors that a process may have and returns what it was.
func setFiles(t *testing.T, pid int, limit uint64) (before uint64) {
	t.Helper()
	var old syscall.Rlimit
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, 0,
		uintptr(unsafe.Pointer(&old)), 0, 0); e != 0 {
		t.Fatal(e)
	}
	set := syscall.Rlimit{Cur: limit, Max: old.Max}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(&set)), 0, 0, 0); e != 0 {
		t.Fatal(e)
	}
	return old.Cur
}

// A runtime that can open no file says so; it does not take its pods for damaged, nor their ends for lost.
//
// spec: SAFE-6
func TestNoDescriptorsInTheRuntime(t *testing.T) {
	sameForUsers(t, "the records are the runtime's")
	n := newNode(t, func(c *Config) { c.bounds.settle, c.bounds.retry = 1, 1 })
	sb := n.sandbox("pod")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	done := n.run(sb, containerConfig("done", "/bin/sh", "-c", "exit 6"))
	n.wait(done)
	pid := n.pid(id)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	highest := uint64(0)
	for _, f := range openFiles(t, os.Getpid()) {
		var fd uint64
		if _, err := fmt.Sscan(f, &fd); err == nil {
			highest = max(highest, fd)
		}
	}
	for limit := highest + 12; limit > highest; limit-- { // Each lets New come less far.
		before := setFiles(t, 0, limit)
		r, err := New(n.cfg)
		setFiles(t, 0, before)
		if err == nil {
			r.mu.RLock()
			if r.sandboxes[sb].rec.damaged {
				t.Errorf("with %d descriptors the sandbox was taken for damaged", limit)
			}
			r.mu.RUnlock()
			err = r.Close()
		} else if !sys.Exhausted(err) {
			t.Errorf("with %d descriptors: %v", limit, err)
		}
		if !alive(pid) {
			t.Fatalf("with %d descriptors the pod was ended: %v", limit, err)
		}
	}
	n.cfg.bounds.settle, n.cfg.bounds.retry = 0, 0
	n.open()
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("status %v", st)
	}
	if st := n.status(done); st.GetExitCode() != 6 {
		t.Errorf("status %v", st)
	}
}

// A shim that can open no file neither calls a container ended while something of it lives, nor loses how it ended.
//
// spec: SAFE-6, TERM-4
func TestNoDescriptorsInTheShim(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims are called the same way")
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("pod")
		file, gate := filepath.Join(n.dir, "daemon"), filepath.Join(n.dir, "gate")
		id := n.run(sb, daemonConfig(t, "c", file, "while [ ! -e "+gate+" ]; do sleep 0.02; done; exit 6", false))
		daemon, shimPID := readPID(t, file), n.shimPID(sb)
		before := setFiles(t, shimPID, 3)
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "process 1 ends", func() bool { return !alive(n.pid(id)) })
		if code := n.startWithin(n.create(sb, containerConfig("refused", "/bin/true")), patience); code != codes.Unknown {
			t.Errorf("a start without descriptors: %s", code)
		}
		if st := n.status(id); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && alive(daemon) {
			t.Errorf("reported exited while %d lives", daemon)
		}
		setFiles(t, shimPID, before)
		if st := n.wait(id); st.GetExitCode() != 6 || alive(daemon) {
			t.Errorf("status %v, the daemon lives: %v", st, alive(daemon))
		}
	})
}

// A full disk costs a container its log, not its time, and not its exit code.
//
// spec: SAFE-6
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no disk can be mounted: ", err)
	}
	t.Cleanup(func() { unmount(t, disk) })
	n := newNode(t, func(c *Config) { c.Dir = filepath.Join(disk, "runtime") })
	n.dir, n.logs = n.cfg.Dir, filepath.Join(disk, "logs")
	gate := filepath.Join(t.TempDir(), "gate")
	sb := n.sandbox("full")
	id := n.run(sb, containerConfig("c", "/bin/sh", "-c",
		"while [ ! -e "+gate+" ]; do sleep 0.02; done; head -c 3000000 /dev/zero; exit 7"))
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, bytes.Repeat([]byte("x"), 2<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	late := n.containers[id]
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if st := n.wait(id); st.GetExitCode() != 7 {
		t.Errorf("status %v", st)
	}
	resp, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil || !strings.Contains(resp.GetInfo()["warnings"], "output was lost") {
		t.Errorf("%v %v", resp.GetInfo(), err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(late.logPath(), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the exit is recorded", func() bool {
		rec, err := loadState(filepath.Join(n.dir, podsDir, sb, shim.Containers, id))
		return err == nil && rec.Phase == shimwire.Exited && rec.ExitCode == 7
	})
}

// What a pod asks for explicitly and does not get is said.
func TestUnhonouredFields(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	onlyHost(t, "images honour them")
	n := newNode(t)
	config := sandboxConfig(n, "named")
	config.Annotations = map[string]string{hostnameAnnotation: "hostname,subdomain"}
	config.Hostname = strings.Repeat("x", maxHostname+1)
	resp, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	sb := n.sandboxOf(resp.GetPodSandboxId())
	n.mu.Lock()
	sb.noView = "no namespace can be made" // As its shim would have told.
	n.mu.Unlock()
	c := containerConfig("c", "/bin/sh", "-c", `echo bye > "$MONOPLANE_TERMINATION_LOG"`)
	c.Annotations = map[string]string{messagePathAnnotation: "/tmp/said"}
	withSecurity(c, &runtimeapi.LinuxContainerSecurityContext{
		SelinuxOptions: &runtimeapi.SELinuxOption{Type: "container_t"}}, 0)
	before := exists(defaultMessagePath)
	for name, config := range map[string]*runtimeapi.ContainerConfig{"asks": c,
		"plain": containerConfig("c", "/bin/true")} {
		sb := resp.GetPodSandboxId()
		if name == "plain" {
			sb = n.sandbox("plain")
		}
		id := n.run(sb, config)
		n.wait(id)
		warnings := n.warnings(id)
		for _, want := range []string{"hostname,subdomain: not set", "terminationMessagePath", messageVariable,
			"hostname: not set, because it has 65 characters", "seLinuxOptions"} {
			if strings.Contains(warnings, want) != (name == "asks") {
				t.Errorf("%s: warnings %s", name, warnings)
			}
		}
	}
	if exists("/tmp/said") || exists(defaultMessagePath) != before {
		t.Error("the runtime has made a file of the machine")
	}
}
