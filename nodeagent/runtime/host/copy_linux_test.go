package host

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// second is another runtime of the machine, on a directory of its own, which may exist already.
func (n *node) second(dir string, change ...func(*Config)) *node {
	n.t.Helper()
	m := &node{t: n.t, dir: dir, logs: n.logs, pods: n.pods, cfg: n.cfg}
	m.cfg.Dir = dir
	for _, f := range change {
		f(&m.cfg)
	}
	m.open()
	n.t.Cleanup(m.cleanUp)
	return m
}

func (n *node) trySandbox(name string) (string, error) {
	resp, err := n.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: nextAttempt(n, name)})
	return resp.GetPodSandboxId(), err
}

// refused runs a pod that must be refused because of a process, and names that.
func (n *node) refused(name string, pid int) {
	n.t.Helper()
	_, err := n.trySandbox(name)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), fmt.Sprintf("process %d", pid)) {
		n.t.Errorf("a pod that runs as process %d already: %v", pid, err)
	}
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// filesOf reads every file below a directory, but the locks and sockets.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(name)
			out[name] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// noClaims is a runtime that cannot claim pods.
func noClaims(c *Config) { c.ClaimDir = "/proc/none/claims" }

// A copy of a directory in use neither touches what the original runs nor runs it a second time; its own files can be
// removed; and when the original has ended, the pod can be run.
//
// spec: SAFE-5
func TestCopyOfALiveDirectory(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"claims": func(*Config) {}, "no claims": noClaims} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			sb := n.sandbox("pod")
			id := n.run(sb, containerConfig("c", "sleep", "1000"))
			done := n.run(sb, containerConfig("done", "/bin/sh", "-c", "exit 6"))
			n.wait(done)
			unstarted := n.create(sb, containerConfig("unstarted", "sleep", "1000"))
			pid, shimPID := n.pid(id), n.shimPID(sb)
			dir := copyOf(t, n.dir)
			before := filesOf(t, filepath.Join(dir, podsDir))
			m := n.second(dir, change)
			unharmed := func() {
				t.Helper()
				if !alive(pid) || !alive(shimPID) || n.status(id).GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
					t.Fatal("the original was harmed")
				}
				if !onImages() {
					return
				}
				got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
					Cmd: []string{"/bin/sh", "-c", "echo x >/data/new && rm /data/new"}})
				if err != nil || got.GetExitCode() != 0 {
					t.Fatalf("the original can write nothing any more: %v %v", got, err)
				}
			}
			unharmed()
			if !maps.Equal(before, filesOf(t, filepath.Join(dir, podsDir))) {
				t.Error("the copy has written into its records")
			}
			if m.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Error("the copy has adopted the sandbox")
			}
			if st := m.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 255 ||
				!strings.Contains(st.GetMessage(), "copy") {
				t.Errorf("status %v", st)
			}
			if st := m.status(done); st.GetExitCode() != 6 {
				t.Errorf("status %v", st)
			}
			if err := m.start(unstarted); err == nil {
				t.Error("the copy has started a container of the original")
			}
			m.refused("pod", shimPID)
			if _, err := m.UpdateContainerResources(t.Context(),
				&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id}); err == nil {
				t.Error("the copy changes limits of the original")
			}
			for _, c := range []string{id, unstarted} {
				if _, err := m.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c}); err != nil {
					t.Error(err)
				}
				if _, err := m.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: c}); err != nil {
					t.Error(err)
				}
			}
			unharmed()
			if _, err := m.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
				t.Error(err)
			}
			unharmed()
			m.refused("pod", shimPID)
			if err := n.start(unstarted); err != nil {
				t.Errorf("the original cannot go on: %v", err)
			}
			if _, err := n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.trySandbox("pod"); err != nil {
				t.Errorf("the original has ended: %v", err)
			}
		})
	}
}

// Two runtimes that want one pod at the same time: one of them gets it.
//
// spec: SAFE-5
func TestTwoDirectoriesOnePod(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims hold the claims")
	n := newNode(t)
	m := n.second(filepath.Join(t.TempDir(), "other"))
	for i := range 10 {
		name := fmt.Sprint("pod", i)
		var ids [2]string
		var both sync.WaitGroup
		for j, one := range []*node{n, m} {
			both.Go(func() {
				var err error
				if ids[j], err = one.trySandbox(name); err != nil && status.Code(err) != codes.FailedPrecondition {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if (ids[0] == "") == (ids[1] == "") {
			t.Fatalf("sandboxes %q", ids)
		}
		winner, loser := n, m
		if ids[0] == "" {
			winner, loser = m, n
		}
		id := ids[0] + ids[1]
		loser.refused(name, winner.shimPID(id))
		if i%2 == 0 { // Also when the winner is not there.
			winner.reopen()
			loser.refused(name, winner.shimPID(id))
		}
		_, err := winner.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := loser.trySandbox(name); err != nil {
			t.Error(err)
		} else if _, err := loser.RemovePodSandbox(t.Context(),
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(n.cfg.ClaimDir); len(left) > 0 {
		t.Errorf("claims are left: %v", left)
	}
}

// What a killed shim has left keeps its pod from being run by another directory, until it is gone: known from the
// claim, or from the records of a copy, whether the other runtime was there before or not.
//
// spec: SAFE-5
func TestLeftoversElsewhere(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims hold the claims")
	for _, how := range []string{"there before", "comes later", "copy without claims"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *Config) { c.NoCgroups = true })
			var m *node
			if how == "there before" {
				m = n.second(filepath.Join(t.TempDir(), "other"))
			}
			sb := n.sandbox("pod")
			file := filepath.Join(n.dir, "daemon")
			n.run(sb, daemonConfig(t, "c", file, "exec sleep 1000", false))
			daemon, shimPID := readPID(t, file), n.shimPID(sb)
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			send(t, shimPID, syscall.SIGKILL)
			if _, err := syscall.Wait4(shimPID, nil, 0, nil); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "comes later":
				m = n.second(filepath.Join(t.TempDir(), "other"))
			case "copy without claims":
				m = n.second(copyOf(t, n.dir), noClaims)
			}
			m.refused("pod", daemon)
			if !alive(daemon) {
				t.Error("the leftover was killed by a runtime that it does not belong to")
			}
			n.open() // Its own one ends it.
			if alive(daemon) {
				t.Error("the leftover lives")
			}
			if _, err := m.trySandbox("pod"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A directory that was moved is the same one.
//
// spec: SAFE-5
func TestMovedDirectory(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the records are the runtime's")
	n := newNode(t)
	sb := n.sandbox("pod")
	ready := filepath.Join(t.TempDir(), "ready")
	id := n.run(sb, containerConfig("c", "/bin/sh", "-c",
		`trap 'exit 3' TERM; echo $$ > `+ready+`; while :; do sleep 0.02; done`))
	pid := readPID(t, ready)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	moved := n.dir + "-moved"
	if err := os.Rename(n.dir, moved); err != nil {
		t.Fatal(err)
	}
	n.dir, n.cfg.Dir = moved, moved
	n.open()
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || n.pid(id) != pid {
		t.Errorf("status %v", st)
	}
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 3 {
		t.Errorf("status %v", st)
	}
}

// A backup that takes the place of its original: what the original started runs on, unreachable. It is neither
// adopted nor killed, and while it lives its pod is not started; whose it is is up to the operator.
//
// spec: SAFE-5
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *Config) { c.NoCgroups = true })
	sb := n.sandbox("pod")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	pid, shimPID := n.pid(id), n.shimPID(sb)
	backup := copyOf(t, n.dir)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, n.dir); err != nil {
		t.Fatal(err)
	}
	n.open()
	if !alive(pid) || n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Error("it was killed, or adopted")
	}
	n.refused("pod", shimPID)
	send(t, shimPID, syscall.SIGKILL) // As the message says.
	if _, err := syscall.Wait4(shimPID, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if onImages() { // Which does not die with its shim.
		n.refused("pod", pid)
		send(t, pid, syscall.SIGKILL)
	}
	eventually(t, "process 1 dies with its shim", func() bool { return !alive(pid) })
	if _, err := n.trySandbox("pod"); err != nil {
		t.Error(err)
	}
}

// A damaged sandbox in a copy is not taken for the original's.
//
// spec: SAFE-5
func TestDamagedCopy(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("pod")
		id := n.run(sb, containerConfig("c", "sleep", "1000"))
		dir := copyOf(t, n.dir)
		if err := os.WriteFile(filepath.Join(dir, podsDir, sb, sandboxName), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		m := n.second(dir, func(c *Config) {
			c.bounds.settle, c.bounds.margin, c.bounds.retry = 50*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
		})
		if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || !alive(n.pid(id)) ||
			!alive(n.shimPID(sb)) {
			t.Errorf("status %v", st)
		}
		_, err := m.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
		if err == nil || !strings.Contains(err.Error(), "left: ") {
			t.Errorf("%v", err)
		}
		n.removeAll()
		eventually(t, "the copy's files can be removed", func() bool {
			_, err := m.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
			return err == nil && !exists(filepath.Join(dir, podsDir, sb))
		})
	})
}

// A claim directory that somebody else could write to is not used, and pods are found by looking for them instead.
func TestForeignClaimDirectory(t *testing.T) {
	t.Parallel()
	sameOnImages(t, "shims hold the claims")
	n := newNode(t)
	sb := n.sandbox("pod")
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(n.cfg.ClaimDir, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link} {
		m := n.second(filepath.Join(t.TempDir(), "other"), func(c *Config) { c.ClaimDir = dir })
		if m.claims != "" {
			t.Errorf("%s is used", dir)
		}
		m.refused("pod", n.shimPID(sb))
	}
	if p, ok := loadShim(filepath.Join(n.dir, podsDir, sb)); !ok || !sys.IsAlive(p) {
		t.Error("the shim was harmed")
	}
}

// A program of another user that calls itself a shim, with a FIFO where its record would be, holds up nobody.
//
// spec: SAFE-6
func TestForeignShim(t *testing.T) {
	t.Parallel()
	sameOnImages(t, "shims hold the claims")
	const nobody = 65534
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	dir, err := os.MkdirTemp("", "shim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(dir, shim.Argv0), program)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, sandboxName), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, shim.Argv0), "1000")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skip("no process of another user: ", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for i, change := range []func(*Config){func(*Config) {}, noClaims} {
		n := newNode(t, change)
		n.stop(n.shell(fmt.Sprint("pod", i), "exec sleep 1000"), 10)
	}
}
