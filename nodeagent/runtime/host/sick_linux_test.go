package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

const never = time.Hour

// short makes margins that are worth waiting for. Stopped shims stay so, unless wake says otherwise.
func short(margin, wake time.Duration) func(*Config) {
	return func(c *Config) { c.bounds.margin, c.bounds.wake = margin, wake }
}

func send(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	if sig == syscall.SIGSTOP {
		eventually(t, "the process is stopped", func() bool {
			p, err := sys.Stat(pid)
			return err == nil && p.State == 'T'
		})
	}
}

// startWithin starts a container with a deadline and returns the code of the answer.
func (n *node) startWithin(id string, d time.Duration) codes.Code {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return status.Code(err)
}

// Two starts of one container, asked for one after the other while the shim was stopped, lie in its queue. Their
// deadlines have passed when it goes on: neither is carried out, then or ever.
//
// spec: SAFE-4
func TestQueuedStartsExpire(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims are called the same way")
	n := newNode(t, short(time.Second, never))
	sb := n.sandbox("paused")
	shimPID := n.shimPID(sb)
	send(t, shimPID, syscall.SIGSTOP)
	var ids, files []string
	for i := range 2 {
		file := filepath.Join(n.dir, fmt.Sprint("ran", i))
		config := containerConfig("c", "/bin/sh", "-c", "touch "+file+"; exec sleep 1000")
		config.Metadata.Attempt = uint32(i)
		id := n.create(sb, config)
		// Long enough to be sent on a slow machine: what was not sent lies in no queue.
		if code := n.startWithin(id, 3*time.Second); code != codes.DeadlineExceeded {
			t.Errorf("start %d: %s", i, code)
		}
		ids, files = append(ids, id), append(files, file)
	}
	for _, id := range ids {
		if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.Errorf("an unknown outcome is reported as %v", st)
		}
	}
	send(t, shimPID, syscall.SIGCONT)
	for i, id := range ids {
		st := n.wait(id)
		if st.GetExitCode() != shimwire.CodeNotStarted || st.GetReason() != shimwire.ReasonStartError ||
			!strings.Contains(st.GetMessage(), "too late") {
			t.Errorf("status %v", st)
		}
		if exists(files[i]) {
			t.Errorf("start %d was carried out after its deadline", i)
		}
		if err := n.start(id); err == nil {
			t.Error("a container that had expired was started")
		}
	}
	n.reopen()
	for _, id := range ids {
		if st := n.status(id); st.GetReason() != shimwire.ReasonStartError {
			t.Errorf("after a restart: %v", st)
		}
	}
}

// A start whose caller has gone is carried out before its deadline, unless the container was removed in between.
//
// spec: SAFE-4
func TestStartWithoutItsCaller(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims are called the same way")
	n := newNode(t, short(4*time.Second, never))
	sb := n.sandbox("abandoned")
	shimPID := n.shimPID(sb)
	kept := n.create(sb, containerConfig("kept", "sleep", "1000"))
	file := filepath.Join(n.dir, "ran")
	removed := n.create(sb, containerConfig("removed", "/bin/sh", "-c", "echo $$ >> "+file+"; exec sleep 1000"))
	send(t, shimPID, syscall.SIGSTOP)
	for _, id := range []string{kept, removed} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		gone := make(chan codes.Code, 1)
		sent := n.unread(sb)
		go func() {
			_, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			gone <- status.Code(err)
		}()
		eventually(t, "the start is sent", func() bool { return n.unread(sb) > sent })
		cancel()
		if code := <-gone; code != codes.Canceled {
			t.Errorf("%s", code)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: removed})
		done <- err
	}()
	send(t, shimPID, syscall.SIGCONT)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); err == nil { // It may have been started before it was removed.
		pid := 0
		if _, err := fmt.Sscan(string(b), &pid); err == nil && alive(pid) {
			t.Error("a removed container runs")
		}
	}
	eventually(t, "the other one runs", func() bool {
		return n.status(kept).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
}

// A container that stops its own shim gets its grace all the same, and how it ends is known.
//
// spec: SAFE-6, TERM-1
func TestContainerStopsItsShim(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the runtime ends what a shim does not")
	n := newNode(t, short(20*time.Second, 20*time.Millisecond))
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("saboteur",
		`trap 'sleep 0.1; echo tidied; exit 3' TERM; kill -STOP $PPID; echo $$ > `+ready+`; while :; do sleep 0.02; done`)
	readPID(t, ready)
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 3 || !strings.Contains(n.logText(id), "tidied") {
		t.Errorf("status %v, log %q", st, n.logText(id))
	}
	if n.sandboxState(n.containers[id].sb.id) != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Error("the sandbox did not survive")
	}
	// An end that nobody asks for is noticed too.
	id = n.shell("leaver", `kill -STOP $PPID; exit 4`)
	if st := n.wait(id); st.GetExitCode() != 4 {
		t.Errorf("status %v", st)
	}
}

// A shim that is stopped again whenever it goes on is ended by the runtime, not before the container's grace is over.
//
// spec: SAFE-6, TERM-1
func TestContainerStopsItsShimAgainAndAgain(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the runtime ends what a shim does not")
	n := newNode(t, short(2*time.Second, 10*time.Millisecond))
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("saboteur", `trap '' TERM; shim=$PPID; (while :; do kill -STOP $shim || exit; done) & echo $$ > `+ready+
		`; while :; do sleep 0.02; done`)
	pid, shimPID := readPID(t, ready), n.shimPID(n.containers[id].sb.id)
	begin := time.Now()
	_, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
	if d := time.Since(begin); d < time.Second {
		t.Errorf("ended after %s: %v", d, err)
	}
	n.wait(id)
	if alive(pid) {
		t.Error("it is alive")
	}
	t.Logf("the stop said %v; the shim lives: %v", err, alive(shimPID))
}

// Without its shim, a container gets its stop signal and its grace from the runtime, and so do the others of the pod,
// whose end this is too. Other pods are not held up.
//
// spec: SAFE-6, TERM-1
func TestStopWithoutShim(t *testing.T) {
	t.Parallel()
	sameOnImages(t, "the runtime ends what a shim does not")
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("deaf")
		tidy := func(name string) (string, string) {
			file := filepath.Join(n.dir, name)
			id := n.run(sb, containerConfig(name, "/bin/sh", "-c",
				`trap 'echo tidied > `+file+`; exit 0' TERM; echo > `+file+`.ready; while :; do sleep 0.02; done`))
			eventually(t, "it is ready", func() bool { return exists(file + ".ready") })
			return id, file
		}
		first, firstFile := tidy("first")
		other, otherFile := tidy("other")
		stubborn := filepath.Join(n.dir, "stubborn")
		n.run(sb, containerConfig("stubborn", "/bin/sh", "-c",
			`trap '' TERM; echo $$ > `+stubborn+`; while :; do sleep 0.05; done`))
		stubbornPID := readPID(t, stubborn)
		shimPID := n.shimPID(sb)
		send(t, shimPID, syscall.SIGSTOP)
		healthy := n.shell("healthy", "exec sleep 1000")
		done := make(chan error, 1)
		go func() {
			_, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: first, Timeout: 2})
			done <- err
		}()
		n.stop(healthy, 10)
		if _, err := n.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
			t.Error(err)
		}
		t.Log("the stop said: ", <-done)
		for _, id := range []string{first, other} {
			n.wait(id)
		}
		if !exists(firstFile) || !exists(otherFile) {
			t.Errorf("the stop signal was seen: %v %v", exists(firstFile), exists(otherFile))
		}
		if alive(stubbornPID) || alive(shimPID) {
			t.Errorf("alive: container %v, shim %v", alive(stubbornPID), alive(shimPID))
		}
		if n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Error("the sandbox is ready")
		}
	}, short(3*time.Second, never))
}

// A shim that nobody could reach until the grace was over gives process 1 its grace all the same.
//
// spec: SAFE-6, TERM-1, DEL-10
func TestStopOfAShimOutOfReach(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("away")
		ready := filepath.Join(n.dir, "ready")
		id := n.run(sb, containerConfig("c", "/bin/sh", "-c",
			`trap 'sleep 0.2; exit 3' TERM; echo > `+ready+`; while :; do sleep 0.02; done`))
		eventually(t, "it is ready", func() bool { return exists(ready) })
		restore := n.hideShim(sb)
		time.AfterFunc(3500*time.Millisecond, restore)
		n.stop(id, 3)
		if code := n.status(id).GetExitCode(); code != 3 {
			t.Errorf("it ended with %d and had no time to see its stop signal", code)
		}
	})
}

// A stop goes on where its connection to the shim breaks: there is one stop signal, and one grace.
//
// spec: TERM-1, TERM-3
func TestStopOverANewConnection(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("broken")
		terms := filepath.Join(n.dir, "terms")
		id := n.run(sb, containerConfig("c", "/bin/sh", "-c",
			`trap 'echo term >> `+terms+`' TERM; touch `+terms+`; while :; do sleep 0.02; done`))
		seen := func() int {
			b, _ := os.ReadFile(terms) // there is none until the trap is set
			return strings.Count(string(b), "term")
		}
		eventually(t, "it is ready", func() bool { return exists(terms) })
		done := make(chan error, 1)
		go func() {
			_, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 2})
			done <- err
		}()
		eventually(t, "the stop signal", func() bool { return seen() == 1 })
		conn, err := n.shimOf(t.Context(), n.sandboxes[sb])
		if err != nil {
			t.Fatal(err)
		}
		conn.conn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := seen(); n != 1 {
			t.Errorf("%d stop signals", n)
		}
	})
}

// unread returns how many bytes of memory hold what was sent to the shim of a sandbox, which has not read it.
func (n *node) unread(sb string) int {
	n.t.Helper()
	conn, err := n.shimOf(n.t.Context(), n.sandboxes[sb])
	if err != nil {
		n.t.Fatal(err)
	}
	raw, err := conn.conn.SyscallConn()
	if err != nil {
		n.t.Fatal(err)
	}
	size := 0
	if errRaw := raw.Control(func(fd uintptr) { size, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err == nil {
		err = errRaw
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return size
}

// hideShim makes the shim of a sandbox unreachable: its connection breaks, and its socket is elsewhere until restore.
func (n *node) hideShim(sb string) (restore func()) {
	n.t.Helper()
	s := n.sandboxes[sb]
	conn, err := n.shimOf(n.t.Context(), s)
	if err != nil {
		n.t.Fatal(err)
	}
	path := filepath.Join(s.dir, shim.SocketName)
	if err := os.Rename(path, path+".away"); err != nil {
		n.t.Fatal(err)
	}
	conn.conn.Close()
	<-conn.done
	return func() {
		if err := os.Rename(path+".away", path); err != nil {
			n.t.Error(err)
		}
	}
}

// Of a container whose start was never answered, the runtime knows from what the shim has written down whom to send
// the stop signal.
//
// spec: SAFE-6, TERM-1
func TestStopAfterALostStart(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "shims are called the same way")
	withAndWithout(t, func(t *testing.T, n *node) {
		sb := n.sandbox("lost")
		ready, tidied := filepath.Join(n.dir, "ready"), filepath.Join(n.dir, "tidied")
		id := n.create(sb, containerConfig("c", "/bin/sh", "-c",
			`trap 'echo > `+tidied+`; exit 0' TERM; echo > `+ready+`; while :; do sleep 0.02; done`))
		shimPID := n.shimPID(sb)
		send(t, shimPID, syscall.SIGSTOP)
		sent := n.unread(sb)
		answered := make(chan codes.Code, 1)
		go func() { answered <- n.startWithin(id, patience) }()
		eventually(t, "the start is sent", func() bool { return n.unread(sb) > sent })
		n.hideShim(sb) // for good
		if code := <-answered; code != codes.Unavailable {
			t.Errorf("the start was answered: %s", code)
		}
		send(t, shimPID, syscall.SIGCONT)
		eventually(t, "it is ready", func() bool { return exists(ready) })
		_, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 5})
		t.Log("the stop said: ", err)
		n.wait(id)
		if !exists(tidied) {
			t.Error("it has not seen its stop signal")
		}
	}, short(2*time.Second, never))
}

// spec: SAFE-6
func TestStopSandboxWithoutShim(t *testing.T) {
	t.Parallel()
	sameForUsers(t, "the runtime ends what a shim does not")
	n := newNode(t, short(400*time.Millisecond, never))
	for _, remove := range []bool{false, true} {
		sb := n.sandbox(fmt.Sprint("deaf-", remove))
		id := n.run(sb, containerConfig("c", "sleep", "1000"))
		pid, shimPID := n.pid(id), n.shimPID(sb)
		send(t, shimPID, syscall.SIGSTOP)
		eventually(t, "the sandbox ends", func() bool {
			var err error
			if remove {
				_, err = n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
			} else {
				_, err = n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
			}
			return err == nil
		})
		if alive(pid) || alive(shimPID) {
			t.Error("something is alive")
		}
	}
}

// hiddenVariable is set in a test process that does not see the freezer of cgroup v1.
const hiddenVariable = "MONOPLANE_HOST_TEST_HIDDEN"

// hideFreezer runs the test anew in a mount namespace from which it takes the freezer, so that nobody can take a
// process out of a frozen group. It returns a way to the freezer for the test alone; "" when the test has run.
func hideFreezer(t *testing.T) string {
	t.Helper()
	const top = "/sys/fs/cgroup/freezer"
	if !exists(top + "/tasks") {
		t.Skip("no freezer of cgroup v1")
	}
	if os.Getenv(hiddenVariable) == "" {
		cmd := exec.Command(testBinary(t), "-test.v", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), hiddenVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("no mount namespace can be made: ", err)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return ""
	}
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Unmount(top, syscall.MNT_DETACH)
	}
	if err != nil {
		t.Fatal(err)
	}
	return procPath(dir)
}

// frozen puts processes into a cgroup v1 that is frozen, where not even SIGKILL reaches them, and returns how to thaw.
func frozen(t *testing.T, freezer string, pids ...int) (thaw func()) {
	t.Helper()
	dir := filepath.Join(freezer, fmt.Sprint("monoplane-test-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no freezer: ", err)
	}
	write := func(file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
	for _, pid := range pids {
		if err := write("cgroup.procs", fmt.Sprint(pid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := write("freezer.state", "FROZEN"); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = write("freezer.state", "THAWED") }
	t.Cleanup(func() {
		thaw()
		eventually(t, "the freezer is empty", func() bool { return os.Remove(dir) == nil })
	})
	return thaw
}

// What cannot even be killed is named by those who wait for it, holds up nobody else, and ends as soon as it can.
//
// spec: SAFE-6
func TestUnkillable(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the runtime ends what a shim does not")
	freezer := hideFreezer(t)
	if freezer == "" {
		return
	}
	for _, what := range []string{"shim", "container"} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t, short(600*time.Millisecond, never), func(c *Config) {
				c.bounds.settle, c.bounds.hello, c.bounds.retry = 50*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
			})
			sb := n.sandbox("frozen")
			id := n.run(sb, containerConfig("c", "sleep", "1000"))
			stuck := n.pid(id)
			if what == "shim" {
				stuck = n.shimPID(sb)
			}
			thaw := frozen(t, freezer, stuck)
			ctx := t.Context()
			named := fmt.Sprintf("process %d", stuck)
			eventually(t, "the stop of the container names what is left", func() bool {
				_, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
				return err != nil && strings.Contains(err.Error(), named)
			})
			eventually(t, "the stop of the sandbox names what is left", func() bool {
				_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb})
				return err != nil && strings.Contains(err.Error(), named)
			})
			if n.sandboxState(sb) != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Error("the sandbox is ready")
			}
			if _, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: nextAttempt(n, "frozen")}); status.Code(
				err) != codes.FailedPrecondition {
				t.Errorf("a second sandbox of the pod: %v", err)
			}
			n.stop(n.shell("healthy", "exec sleep 1000"), 10)
			n.reopen()
			n.stop(n.shell("later", "exec sleep 1000"), 10)
			if st := n.status(id); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && what == "container" {
				t.Errorf("reported as exited: %v", st)
			}
			thaw()
			eventually(t, "the sandbox can be removed", func() bool {
				_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
				return err == nil
			})
			if alive(stuck) {
				t.Error("it is alive")
			}
		})
	}
}

func nextAttempt(n *node, name string) *runtimeapi.PodSandboxConfig {
	config := sandboxConfig(n, name)
	config.Metadata.Attempt = 1
	return config
}

// A runtime that has tried to reach a stopped shim until its backlog was full can be closed, and a new one opened.
//
// spec: SAFE-6
func TestManyAttemptsToReachAShim(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	n := newNode(t, short(400*time.Millisecond, never), func(c *Config) {
		c.bounds.settle, c.bounds.hello, c.bounds.retry = 300*time.Millisecond, time.Millisecond, time.Millisecond
	})
	sb := n.sandbox("stuck")
	id := n.run(sb, containerConfig("c", "sleep", "1000"))
	shimPID, pid := n.shimPID(sb), n.pid(id)
	send(t, shimPID, syscall.SIGSTOP)
	for range 2 {
		n.reopen()
	}
	if _, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"},
		Timeout: 1}); err == nil {
		t.Error("a stopped shim has executed something")
	}
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || !alive(pid) {
		t.Errorf("status %v", st)
	}
	n.cfg.bounds.hello = 0
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	send(t, shimPID, syscall.SIGCONT)
	n.open()
	n.stop(id, 10)
}

// Calls that a stopped shim does not read end with their context all the same, and what was sent is carried out once.
//
// spec: SAFE-6
func TestCallsToAStoppedShim(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "shims are called the same way")
	n := newNode(t, short(400*time.Millisecond, never), func(c *Config) { c.bounds.send = 20 * time.Millisecond })
	sb := n.sandbox("full")
	shimPID := n.shimPID(sb)
	var ids []string
	for i := range 8 {
		config := containerConfig(fmt.Sprint("c", i), "sleep", "1000")
		config.Envs = []*runtimeapi.KeyValue{{Key: "BIG", Value: []byte(strings.Repeat("x", 100<<10))}}
		ids = append(ids, n.create(sb, config))
	}
	send(t, shimPID, syscall.SIGSTOP)
	for _, id := range ids {
		if code := n.startWithin(id, 40*time.Millisecond); code != codes.DeadlineExceeded && code != codes.Unavailable {
			t.Errorf("%s", code)
		}
	}
	send(t, shimPID, syscall.SIGCONT)
	for _, id := range ids {
		if err := n.start(id); err != nil && n.wait(id).GetReason() != shimwire.ReasonStartError {
			t.Errorf("%v, %v", err, n.status(id))
		}
	}
}

// A sandbox whose shim could not say in time that it is up leaves none, however late it was.
//
// spec: SAFE-4
func TestLaunchIsCutOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewSource(seed))
	for i := range 30 {
		config := sandboxConfig(n, "cut")
		config.Metadata.Attempt = uint32(i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.Intn(8_000))*time.Microsecond)
		resp, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		cancel()
		if err == nil {
			if _, err := n.RemovePodSandbox(t.Context(),
				&runtimeapi.RemovePodSandboxRequest{PodSandboxId: resp.GetPodSandboxId()}); err != nil {
				t.Error(err)
			}
		}
		if err != nil && strings.Contains(err.Error(), "has not ended yet") {
			n.removeAll() // What could not be seen dead in time has a sandbox.
		}
		if left := ownShims(t, n); len(left) > 0 || len(n.sandboxes) > 0 {
			t.Fatalf("%v: shims %v, sandboxes %d", err, left, len(n.sandboxes))
		}
	}
}

// A new shim that is stopped before it has said that it is up is killed when its caller's time is over.
//
// spec: SAFE-4
func TestLaunchOfAStoppedShim(t *testing.T) {
	t.Parallel()
	n := newNode(t, short(400*time.Millisecond, never))
	cut := 0
	for i := 0; cut == 0; i++ {
		done, stopper := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopper)
			for !isClosed(done) {
				kids, _ := sys.Children(os.Getpid())
				for _, pid := range kids {
					// Not before it is a shim: until then its parent waits for it in the kernel.
					if p, err := sys.Stat(pid); err == nil && (p.Name == shim.Argv0 || p.Name == filepath.Base(self)) &&
						n.isOf(pid) {
						_ = syscall.Kill(pid, syscall.SIGSTOP)
					}
				}
			}
		}()
		config := sandboxConfig(n, "stopped")
		config.Metadata.Attempt = uint32(i)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		resp, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		cancel()
		close(done)
		<-stopper
		if err != nil {
			cut++
		} else if err := n.remove(t.Context(), resp.GetPodSandboxId()); err != nil { // It was quicker.
			t.Error(err)
		}
		n.removeAll() // What could not be seen dead in time has a sandbox.
		if left := ownShims(t, n); len(left) > 0 {
			t.Fatalf("%v: shims %v", err, left)
		}
	}
}

func ownShims(t *testing.T, n *node) (out []sys.Proc) {
	t.Helper()
	all, err := shims()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if n.isOf(p.PID) {
			out = append(out, p)
		}
	}
	return out
}

// isOf tells whether a shim is one of the node's, whose directory it is in.
func (n *node) isOf(pid int) bool {
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return strings.HasPrefix(dir, n.dir)
}

// A stop that reaches a process that is stopped itself lets it go on, to see the signal.
//
// spec: TERM-1
func TestStopOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim stops containers")
	n := newNode(t)
	ready := filepath.Join(n.dir, "ready")
	id := n.shell("stopped", `trap 'exit 3' TERM; echo $$ > `+ready+`; while :; do sleep 0.02; done`)
	send(t, readPID(t, ready), syscall.SIGSTOP)
	n.stop(id, 30)
	if st := n.status(id); st.GetExitCode() != 3 {
		t.Errorf("status %v", st)
	}
}

// A FIFO in the place of a file holds up nobody.
//
// spec: SAFE-6
func TestFIFOs(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the shim writes the log")
	n := newNode(t)
	id := n.shell("pipes", `rm -f "$MONOPLANE_TERMINATION_LOG"; mkfifo "$MONOPLANE_TERMINATION_LOG"; exit 3`)
	if st := n.wait(id); st.GetExitCode() != 3 || st.GetMessage() != "" {
		t.Errorf("status %v", st)
	}
	sb := n.sandbox("log")
	config := containerConfig("c", "sleep", "1000")
	log := filepath.Join(n.logs, "log", config.GetLogPath())
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(log, 0o600); err != nil {
		t.Fatal(err)
	}
	id = n.create(sb, config)
	if err := n.start(id); err == nil {
		t.Error("a container logs into a FIFO")
	}
	if st := n.wait(id); st.GetReason() != shimwire.ReasonStartError {
		t.Errorf("status %v", st)
	}
	if left := filepath.Join(n.dir, podsDir, sb, shim.LogName); exists(left) {
		if b, _ := os.ReadFile(left); len(b) > 0 {
			t.Errorf("the shim complained: %s", b)
		}
	}
}
