package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

func (n *node) sandboxState(id string) runtimeapi.PodSandboxState {
	n.t.Helper()
	resp, err := n.PodSandboxStatus(n.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetStatus().GetState()
}

// Containers run on while there is no runtime, and what they say and how they end is there afterwards.
func TestAdoption(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("adopted")
	gate := filepath.Join(n.dir, "gate")
	goes := n.run(sb, containerConfig("goes", "/bin/sh", "-c",
		"echo before; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo while away; exit 9"))
	stays := n.run(sb, containerConfig("stays", "sleep", "1000"))
	unstarted := n.create(sb, containerConfig("unstarted", "sleep", "1000"))
	pid := n.pid(stays)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(n.dir, podsDir, sb, shim.Containers, goes)
	eventually(t, "the exit is recorded", func() bool {
		rec, err := loadState(state)
		return err == nil && rec.Phase == shimwire.Exited
	})
	n.open()
	if st := n.status(goes); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 9 {
		t.Errorf("status %v", st)
	}
	if got := n.logText(goes); got != "stdout F before\nstdout F while away\n" {
		t.Errorf("log %q", got)
	}
	if st := n.status(stays); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || n.pid(stays) != pid ||
		!alive(pid) {
		t.Errorf("status %v", st)
	}
	if n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Error("the sandbox is not ready")
	}
	if err := n.start(unstarted); err != nil {
		t.Errorf("starting what was created before: %v", err)
	}
	n.stop(stays, 10)
	if st := n.status(stays); st.GetExitCode() != 143 {
		t.Errorf("status %v", st)
	}
}

func TestOneRuntimePerDirectory(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	if r, err := New(n.cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v %v", r, err)
	}
}

// spec: TERM-4, LIFE-10
func TestShimIsKilled(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		for _, away := range []bool{false, true} {
			name := fmt.Sprintf("away-%v", away)
			sb := n.sandbox(name)
			file := filepath.Join(n.dir, name)
			id := n.run(sb, daemonConfig(t, "c", file, "exec sleep 1000", false))
			unstarted := n.create(sb, containerConfig("unstarted", "sleep", "1000"))
			daemon, pid := readPID(t, file), n.pid(id)
			shimPID := n.shimPID(sb)
			if away {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Kill(shimPID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if away { // Nobody is there to kill process 1 but the kernel.
				if !onImages() { // Theirs live on, until there is a runtime.
					eventually(t, "process 1 dies with its shim", func() bool { return !alive(pid) })
				}
				n.open()
			}
			st := n.wait(id)
			if alive(daemon) || alive(pid) {
				t.Errorf("%s: reported exited while alive: process 1 %v, daemon %v", name, alive(pid), alive(daemon))
			}
			if st.GetExitCode() != 137 || st.GetReason() != "ContainerStatusUnknown" || st.GetStartedAt() == 0 {
				t.Errorf("%s: status %v", name, st)
			}
			if n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("%s: the sandbox is ready", name)
			}
			if err := n.start(unstarted); err == nil {
				t.Errorf("%s: a container was started in a dead sandbox", name)
			}
			if st := n.status(unstarted); st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
				t.Errorf("%s: what was never started is %v", name, st)
			}
		}
	})
}

// A shim that is stopped keeps its pod as it is; only when the pod is to go anyway it is killed.
func TestShimDoesNotAnswer(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the runtime ends what a shim does not")
	n := newNode(t)
	sb := n.sandbox("stuck")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	shimPID, pid := n.shimPID(sb), n.pid(id)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(shimPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.open()
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || !alive(pid) {
		t.Errorf("status %v", st)
	}
	if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
		t.Error(err)
	}
	if alive(pid) || alive(shimPID) {
		t.Error("something is alive")
	}
}

// After a restart of the machine nothing is started again and nothing is believed to run.
func TestMachineRestart(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.sandbox("old")
	ran := n.run(sb, containerConfig("ran", "sleep", "1000"))
	done := n.run(sb, containerConfig("done", "/bin/sh", "-c", "exit 6"))
	n.wait(done)
	unstarted := n.create(sb, containerConfig("unstarted", "sleep", "1000"))
	shimPID := n.shimPID(sb)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(shimPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(shimPID, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(n.dir, podsDir, sb, sandboxName)
	rec, err := loadSandbox(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.group.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cgroup is empty", func() bool { return rec.group.Remove() == nil })
	rec.bootID = "another-boot"
	if err := rec.save(name); err != nil {
		t.Fatal(err)
	}
	n.open()
	if st := n.status(ran); st.GetExitCode() != 255 || st.GetReason() != "ContainerStatusUnknown" {
		t.Errorf("status %v", st)
	}
	if st := n.status(done); st.GetExitCode() != 6 || st.GetReason() != "Error" {
		t.Errorf("status %v", st)
	}
	if n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Error("the sandbox is ready")
	}
	if err := n.start(unstarted); err == nil {
		t.Error("a container was started in a sandbox of another boot")
	}
}

// Files that make no sense end their pod, and are neither fatal nor believed.
func TestDamagedSandbox(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("damaged")
	pid := n.pid(n.run(sb, containerConfig("c", "sleep", "1000")))
	n.mu.RLock()
	rec := n.sandboxes[sb].rec
	n.mu.RUnlock()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	shimPID := n.shimPID(sb)
	if err := os.WriteFile(filepath.Join(n.dir, podsDir, sb, sandboxName), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.open()
	eventually(t, "what the damaged sandbox had is gone", func() bool {
		n.mu.RLock()
		defer n.mu.RUnlock()
		return !alive(pid) && len(n.sandboxes) == 0
	})
	if n.cfg.OCI != nil {
		if left, err := n.cfg.OCI.Images.(*testStore).Roots(); err != nil || len(left) > 0 {
			t.Errorf("roots of containers are left: %v %v", left, err)
		}
	}
	// The shim was a child of this very process, so the runtime of another life could not reap it.
	if _, err := syscall.Wait4(shimPID, nil, 0, nil); err != nil {
		t.Error(err)
	}
	if left, _ := sys.Marked(rec.marker, "none"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := rec.group.Remove(); err != nil {
		t.Error(err)
	}
}
