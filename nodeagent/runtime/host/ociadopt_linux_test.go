package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// The containers of images outlive the runtime, which finds them again, with all that can be done with them.
//
// spec: SAFE-5
func TestRootImageAdoption(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done")))
	pid := n.pid(id)
	n.reopen()
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || n.pid(id) != pid {
		t.Fatalf("%v", st)
	}
	out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "hello"}})
	if err != nil || string(out.GetStdout()) != "hello\n" {
		t.Errorf("exec: %v %v", out, err)
	}
	if err := n.start(n.create(sb, ofImage(containerConfig("second", "true")))); err != nil {
		t.Errorf("the shim has lost the helper: %v", err)
	}
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 5 {
		t.Errorf("%v", st)
	}
}

// A sandbox whose maker was killed after its shim had started, and before it was connected to the network, is not
// ready afterwards: it has no address, and must not pass for one that has the machine's. It can be removed.
//
// spec: NET-1, SAFE-1
func TestRootImageSandboxWithoutNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	unconnected, connected := n.sandbox("unconnected"), n.sandbox("connected")
	if err := os.Remove(filepath.Join(n.dir, podsDir, unconnected, addressesName)); err != nil {
		t.Fatal(err)
	}
	n.reopen()
	for id, want := range map[string]runtimeapi.PodSandboxState{
		unconnected: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, connected: runtimeapi.PodSandboxState_SANDBOX_READY,
	} {
		st, err := n.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil || st.GetStatus().GetState() != want {
			t.Errorf("%v %v, expected %v", st, err, want)
		}
	}
	n.removeAll()
}

// losing is a network that loses a sandbox.
type losing struct {
	loopbackOnly

	lost *atomic.Pointer[string]
}

func (l losing) Lost() []string {
	if id := l.lost.Load(); id != nil {
		return []string{*id}
	}
	return nil
}

// A sandbox whose network is gone for good is not ready any more, so that it is made again; its containers end by the
// agent's order, with their grace.
//
// spec: NET-1
func TestRootImageNetworkIsLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Pointer[string]
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = losing{lost: &lost} })
	sb, other := n.sandbox("pod"), n.sandbox("other")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c",
		"trap 'exit 5' TERM; echo waits; while :; do sleep 0.05; done")))
	eventually(t, "the container waits for its end", func() bool { return strings.Contains(n.logText(id), "waits") })
	state := func(id string) runtimeapi.PodSandboxState {
		if _, err := n.Status(t.Context(), &runtimeapi.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		st, err := n.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil {
			t.Fatal(err)
		}
		return st.GetStatus().GetState()
	}
	if st := state(sb); st != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Fatal(st)
	}
	lost.Store(&sb)
	if st := state(sb); st != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox that has lost its network is %v", st)
	}
	if st := state(other); st != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("another sandbox is %v", st)
	}
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("its container is %v before anybody stops it", st)
	}
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 5 {
		t.Errorf("its container was not asked to end: %v", st)
	}
	n.removeAll()
}

// When a shim is killed, what it has started is found and killed by the runtime: here processes have a parent that
// outlives the shim.
func TestRootImageShimIsKilled(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("pod")
		id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", "sleep 1000 & sleep 1000")))
		pid := n.pid(id)
		if err := unix.Kill(n.shimPID(sb), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the container is gone", func() bool {
			return n.status(id).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !alive(pid)
		})
		if st := n.status(id); st.GetExitCode() != 137 || st.GetReason() != "ContainerStatusUnknown" {
			t.Errorf("%v", st)
		}
	}, func(c *Config) { withImages(t)(c) }) // a store for each: what one does not know there it removes
}

// A start that comes too late, and one whose helper is killed on its way, leave a container that never runs, and no
// process.
//
// spec: SAFE-4
func TestRootImageStartIsCutOff(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	shim := n.shimPID(sb)
	killed := 0
	defer func() { t.Logf("%d helpers were killed", killed) }()
	for i := range 30 {
		id := n.create(sb, ofImage(containerConfig(fmt.Sprint("c", i), "sleep", "1000")))
		done := make(chan error, 1)
		go func() { done <- n.start(id) }()
		// The moment of the kill is what varies: it comes after so many looks at the shim's children.
		for look := 0; len(done) == 0; look++ {
			kids, err := sys.Children(shim)
			if err != nil {
				t.Fatal(err)
			}
			all, _ := sys.Descendants(kids)
			for _, p := range all {
				if look < 8*i || !isHelper(p) {
					continue
				}
				// It may become the container's process at any time, which is not to be killed: it is looked at again when it
				// cannot.
				_ = sys.Signal(p, unix.SIGSTOP)
				if !stopped(p) {
					continue
				}
				end := unix.SIGCONT
				if isHelper(p) {
					end = unix.SIGKILL
					killed++
				}
				_ = sys.Signal(p, end)
			}
		}
		err, st := <-done, n.status(id)
		if err == nil && st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING ||
			err != nil && (st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128) {
			t.Errorf("%v, and %v", err, st)
		}
		n.stop(id, 0)
	}
}

func isHelper(p sys.Proc) bool {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	return strings.HasPrefix(string(name), "monoplane-oci")
}

// stopped waits until a process that was sent SIGSTOP has stopped; false when it has ended.
func stopped(p sys.Proc) bool {
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		_, state, _ := strings.Cut(string(stat), ") ")
		switch {
		case err != nil, strings.HasPrefix(state, "Z"), strings.HasPrefix(state, "X"):
			return false
		case strings.HasPrefix(state, "T"), strings.HasPrefix(state, "t"):
			return true
		}
	}
}

// What it costs: printed, and bounded where the shim's memory is concerned.
func TestRootImageCost(t *testing.T) {
	n := newNode(t, withImages(t))
	var took []time.Duration
	for i := range 20 {
		begin := time.Now()
		sb := n.sandbox(fmt.Sprint("p", i))
		n.run(sb, ofImage(containerConfig("c", "sleep", "1000")))
		took = append(took, time.Since(begin).Round(time.Millisecond/10))
	}
	t.Logf("sandbox and container: %v", took)
	for id := range n.sandboxes {
		if anon := rssAnon(t, n.shimPID(id)); anon > 1200 && !raceDetector {
			t.Errorf("the shim has %d KiB of anonymous memory", anon)
		}
	}
}
