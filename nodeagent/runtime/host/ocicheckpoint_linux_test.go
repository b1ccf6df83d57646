package host

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/oci/spec"
)

// counting counts in a container, in a file and in the log.
const counting = "i=0; while :; do i=$((i+1)); echo $i >/data/count; echo $i; sleep 0.1; done"

// checkpoint asks for a checkpoint of a container in a new directory, and returns where.
func (n *node) checkpoint(ctx context.Context, id string, timeout int64) (string, error) {
	at := filepath.Join(n.t.TempDir(), "checkpoint.tar")
	_, err := n.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: at,
		Timeout: timeout})
	return at, err
}

// isUnharmed waits until a container has gone on since, and looks for what an attempt may have left.
func (n *node) isUnharmed(id, at string) {
	n.t.Helper()
	before := n.logText(id)
	eventually(n.t, "the container goes on", func() bool {
		if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			n.t.Fatalf("it is %v", st)
		}
		return len(n.logText(id)) > len(before)
	})
	if left, err := os.ReadDir(filepath.Dir(at)); err != nil || len(left) > 0 {
		n.t.Errorf("beside the checkpoint there is %v %v", left, err)
	}
	if dir := filepath.Join(n.containers[id].dir, checkpointName); exists(dir) {
		n.t.Errorf("%s is left", dir)
	}
}

// playCriu puts a script in the place of CRIU.
func (n *node) playCriu(t testing.TB, script string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("checkpoints take root")
	}
	n.criu = playProgram(t, criuName, script)
}

// playProgram makes a program of a script, in a directory of its own.
func playProgram(t testing.TB, name, script string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	writeProgram(t, program, []byte("#!/bin/bash\n"+script+"\n"))
	return program
}

// wantError checks the code and the words of an error.
func wantError(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v, expected %v", err, code)
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}

// What cannot be checkpointed is refused in words.
func TestRootImageCheckpointRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	n.playCriu(t, "exit 1")
	sb := n.sandbox("pod")
	_, err := n.checkpoint(t.Context(), "none", 1)
	wantError(t, err, codes.NotFound, "none")
	onHost := containerConfig("host", "sleep", "600")
	onHost.Image = &runtimeapi.ImageSpec{Image: ImageName}
	onHost.Linux = nil
	_, err = n.checkpoint(t.Context(), n.run(sb, onHost), 1)
	wantError(t, err, codes.Unimplemented, `image "host"`)
	created := n.create(sb, ofImage(containerConfig("created", "true")))
	_, err = n.checkpoint(t.Context(), created, 1)
	wantError(t, err, codes.FailedPrecondition, "CREATED", "must be running")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", counting)))
	for _, location := range []string{"", "relative"} {
		_, err = n.CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: id,
			Location: location})
		wantError(t, err, codes.InvalidArgument, "absolute")
	}
	_, err = n.checkpoint(t.Context(), id, -1)
	wantError(t, err, codes.InvalidArgument, "timeout")
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = n.CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: there})
	wantError(t, err, codes.AlreadyExists, there)
	n.mu.Lock()
	n.sandboxes[sb].version--
	n.mu.Unlock()
	_, err = n.checkpoint(t.Context(), id, 1)
	wantError(t, err, codes.FailedPrecondition, "older version")
	n.mu.Lock()
	n.sandboxes[sb].version++
	n.mu.Unlock()
	n.criu = filepath.Join(t.TempDir(), criuName)
	at, err := n.checkpoint(t.Context(), id, 1)
	wantError(t, err, codes.FailedPrecondition, "CRIU, which this node lacks", "install")
	n.isUnharmed(id, at)
}

// Without root there are none.
func TestRootImageCheckpointNeedsRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("as root there are")
	}
	n := newNode(t, withImages(t))
	_, err := n.checkpoint(t.Context(), n.run(n.sandbox("pod"), ofImage(containerConfig("c", "sleep", "600"))), 1)
	wantError(t, err, codes.Unimplemented, "needs root")
}

// answerOf has a script be asked, and answer with bytes of CRIU's protocol.
func answerOf(octal string) string {
	return `dd bs=4096 count=1 <&"$2" >/dev/null 2>&1; env printf '` + octal + `' >&"$2"; `
}

// A CRIU that fails, in whatever way, is an error that says how, and the container goes on.
func TestRootImageCheckpointFails(t *testing.T) {
	t.Parallel()
	version := func(major int) string {
		return answerOf(fmt.Sprintf(`\010\012\020\001\122\004\010\%03o\020\021`, major))
	}
	// The second time it is asked for the images, and has a log.
	failing := func(dir string) string {
		return `if ! mkdir "$0.asked" 2>/dev/null; then echo "Error (it): cannot" >"$(echo ` + dir + `/*/` + checkpointName +
			`)/dump.log"; ` + answerOf(`\010\001\020\000`) + `exit 1; fi; ` + version(3)
	}
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", counting)))
	for name, c := range map[string]struct{ script, says string }{
		"ends": {"exit 1", "CRIU version check failed"},
		"old":  {version(2), "CRIU version 21700 must be 30000 or higher"},
		"log":  {failing(filepath.Dir(n.containers[id].dir)), "the last lines of its log: Error (it): cannot"},
	} {
		t.Run(name, func(t *testing.T) {
			n.playCriu(t, c.script)
			at, err := n.checkpoint(t.Context(), id, 60)
			wantError(t, err, codes.FailedPrecondition, c.says)
			n.isUnharmed(id, at)
		})
	}
}

// hangingCriu plays one that never answers, and returns the file in which it names itself and its child.
func (n *node) hangingCriu() (pids string) {
	n.t.Helper()
	pids = filepath.Join(n.t.TempDir(), "pids")
	n.playCriu(n.t, "sleep 1000 & echo $$ $! >"+pids+".new; mv "+pids+".new "+pids+"; wait")
	return pids
}

// hasEnded waits until neither a CRIU that hangs nor its child are left.
func hasEnded(t *testing.T, pids string) {
	t.Helper()
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "what played CRIU has ended", func() bool { return !alive(pid) })
	}
	if err := os.Remove(pids); err != nil {
		t.Fatal(err)
	}
}

// A CRIU that hangs is ended at the timeout, or when nobody waits for it, when its helper is killed, or the container
// stopped. The container was frozen meanwhile, and goes on.
func TestRootImageCheckpointHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", "trap 'exit 5' TERM; "+counting)))
	pids := n.hangingCriu()

	at, err := n.checkpoint(t.Context(), id, 1)
	wantError(t, err, codes.DeadlineExceeded, "1s", "runs on")
	if exists(pids) { // On a busy machine it may not even have begun.
		hasEnded(t, pids)
	}
	n.isUnharmed(id, at)

	// begin begins one that hangs, and returns what ends its call, and its outcome.
	begin := func() (context.CancelFunc, <-chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		outcome := make(chan error, 1)
		go func() {
			var err error
			at, err = n.checkpoint(ctx, id, 600)
			outcome <- err
		}()
		eventually(t, "CRIU hangs", func() bool { return exists(pids) })
		return cancel, outcome
	}
	cancel, outcome := begin()
	other, err := n.checkpoint(t.Context(), id, 1)
	wantError(t, err, codes.FailedPrecondition, "another checkpoint")
	cancel()
	wantError(t, <-outcome, codes.Canceled)
	hasEnded(t, pids)
	n.isUnharmed(id, at)
	n.isUnharmed(id, other)

	_, outcome = begin()
	criu, _, _ := strings.Cut(readText(t, pids), " ")
	pid, err := strconv.Atoi(criu)
	if err != nil {
		t.Fatal(err)
	}
	is, err := sys.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(is.PPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-outcome, codes.FailedPrecondition, "ended from outside")
	hasEnded(t, pids)
	n.isUnharmed(id, at)

	_, outcome = begin()
	n.stop(id, 60)
	wantError(t, <-outcome, codes.FailedPrecondition, "being stopped")
	if st := n.wait(id); st.GetExitCode() != 5 {
		t.Errorf("it had no use of its grace: %v", st)
	}
	hasEnded(t, pids)

	id = n.run(sb, ofImage(containerConfig("removed", "/bin/sh", "-c", counting)))
	_, outcome = begin()
	if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if err := <-outcome; err == nil {
		t.Error("there is a checkpoint")
	}
	hasEnded(t, pids)
}

// What an agent leaves that is killed while it puts a checkpoint together is removed by the next one.
func TestRootImageCheckpointForgotten(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	id := n.run(n.sandbox("pod"), ofImage(containerConfig("c", "/bin/sh", "-c", counting)))
	dir := filepath.Join(n.containers[id].dir, checkpointName)
	if err := os.MkdirAll(filepath.Join(dir, "checkpoint"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.reopen()
	if exists(dir) {
		t.Error("it is left")
	}
}

// When the shim dies, so does what makes the checkpoint.
func TestRootImageCheckpointWithoutShim(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", counting)))
	pids := n.hangingCriu()
	outcome := make(chan error, 1)
	go func() {
		_, err := n.checkpoint(t.Context(), id, 600)
		outcome <- err
	}()
	eventually(t, "CRIU hangs", func() bool { return exists(pids) })
	if err := unix.Kill(n.shimPID(sb), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-outcome, codes.Unavailable)
	n.wait(id)
	hasEnded(t, pids)
}

func readText(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// needCriu skips a test where CRIU does not work.
func needCriu(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), criuName, "check").CombinedOutput()
	if err != nil {
		t.Skipf("criu check: %v: %s", err, out)
	}
}

// A checkpoint of a container holds all that it takes to go on elsewhere, which runc shows, and the container itself
// goes on, too.
func TestRootImageCheckpoint(t *testing.T) {
	t.Parallel()
	needCriu(t)
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c", "rm /kept/file; "+counting)))
	eventually(t, "it counts", func() bool { return strings.Contains(n.logText(id), "stdout F 3\n") })
	at, err := n.checkpoint(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(at); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	dir := t.TempDir()
	unpack(t, at, dir)
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	n.isUnharmed(id, at)
	var config checkpointConfig
	if err := readJSON(filepath.Join(dir, "config.dump"), &config); err != nil || config.ID != id ||
		config.ImageName != testImage {
		t.Errorf("config.dump: %+v %v", config, err)
	}
	var state runtimeapi.ContainerStatus
	if err := readJSON(filepath.Join(dir, "status.dump"), &state); err != nil || state.GetId() != id {
		t.Errorf("status.dump: %v %v", &state, err)
	}
	for _, name := range []string{"dump.log", "stats-dump", "checkpoint/inventory.img", "checkpoint/descriptors.json"} {
		if !exists(filepath.Join(dir, name)) {
			t.Errorf("there is no %s", name)
		}
	}
	upper := filepath.Join(dir, "upper")
	unpack(t, filepath.Join(dir, "rootfs-diff.tar"), upper)
	if !exists(filepath.Join(upper, "kept/.wh.file")) {
		t.Error("nothing says that a file was removed")
	}
	count, err := strconv.Atoi(strings.TrimSpace(readText(t, filepath.Join(upper, "data/count"))))
	if err != nil || count < 3 {
		t.Errorf("it had counted to %d: %v", count, err)
	}
	if next := n.restored(t, id, dir, upper); next != count && next != count+1 {
		t.Errorf("it had counted to %d, and goes on with %d", count, next)
	}
}

// restored restores a checkpoint with runc, in the sandbox that it comes from, and returns the first number that the
// container counts.
func (n *node) restored(t *testing.T, id, dir, upper string) int {
	t.Helper()
	var b spec.Bundle
	if err := readJSON(filepath.Join(n.containers[id].bundleDir(), spec.File), &b); err != nil {
		t.Fatal(err)
	}
	root, work := filepath.Join(dir, "root"), filepath.Join(dir, "work")
	for _, d := range []string{root, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s",
		strings.Join(b.Layers, ":"), upper, work)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	var config specs.Spec
	if err := readJSON(filepath.Join(dir, "spec.dump"), &config); err != nil {
		t.Fatal(err)
	}
	config.Root = &specs.Root{Path: root}
	config.Linux.CgroupsPath = "/restored-" + id
	for i := range config.Mounts {
		if m := &config.Mounts[i]; m.Destination == "/dev/shm" {
			m.Source = t.TempDir() // It was the sandbox's, in a mount namespace that the shim holds.
		}
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := "restored-" + id
	path := "PATH="
	for _, lock := range []string{"iptables-restore", "ip6tables-restore"} {
		// What CRIU locks networks with, which the checkpoint has not done.
		path += filepath.Dir(playProgram(t, lock, "")) + ":"
	}
	runc := exec.CommandContext(ctx, "runc", "--root", filepath.Join(dir, "runc"), "restore", "--bundle", dir,
		"--image-path", filepath.Join(dir, "checkpoint"), "--work-path", dir, "--file-locks", name)
	runc.Env = append(os.Environ(), path+os.Getenv("PATH"))
	out, err := runc.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	runc.Stderr = &said
	if err := runc.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		end := exec.CommandContext(context.WithoutCancel(ctx), "runc", "--root", filepath.Join(dir, "runc"), "delete",
			"--force", name)
		if text, err := end.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		_ = runc.Wait()
	}()
	var next int
	if _, err := fmt.Fscan(out, &next); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "restore.log"))
		t.Fatalf("%v: %s; %s", err, &said, log[max(0, len(log)-3000):])
	}
	return next
}

// unpack unpacks an archive of directories and regular files.
func unpack(t testing.TB, archive, to string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(to, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Whenever a checkpoint is broken off, the container goes on.
func TestRootImageCheckpointBrokenOff(t *testing.T) {
	t.Parallel()
	needCriu(t)
	n := newNode(t, withImages(t))
	id := n.run(n.sandbox("pod"), ofImage(containerConfig("c", "/bin/sh", "-c", counting)))
	begun := time.Now()
	at, err := n.checkpoint(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole := time.Since(begun)
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for i := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/rounds)
		at, err := n.checkpoint(ctx, id, 0)
		cancel()
		if err == nil {
			err = os.Remove(at)
		} else if status.Code(err) == codes.DeadlineExceeded {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
		n.isUnharmed(id, at)
	}
}

// Whatever a container shares or has of its own, there are checkpoints of it, in which files have the ids that they
// have in the container.
func TestRootImageCheckpointKinds(t *testing.T) {
	t.Parallel()
	needCriu(t)
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	sandbox := func(name string, namespaces *runtimeapi.NamespaceOption) string {
		config := sandboxConfig(n, name)
		config.Linux = &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}}
		made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		return made.GetPodSandboxId()
	}
	shared := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}
	machines := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
		Network: runtimeapi.NamespaceMode_NODE}
	in := func(namespaces *runtimeapi.NamespaceOption) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions = namespaces }
	}
	volume := t.TempDir()
	for name, k := range map[string]struct {
		sandbox string
		change  func(*runtimeapi.ContainerConfig)
	}{
		"terminal": {n.sandbox("plain"), func(c *runtimeapi.ContainerConfig) { c.Tty, c.Stdin = true, true }},
		"volume": {n.sandbox("volume"), func(c *runtimeapi.ContainerConfig) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{HostPath: volume, ContainerPath: "/volume"})
		}},
		"processes": {sandbox("shared", shared), in(shared)},
		"machine":   {sandbox("machine", machines), in(machines)},
		"users":     {n.userSandbox("users", users), as(users)},
	} {
		t.Run(name, func(t *testing.T) {
			config := ofImage(containerConfig(name, "/bin/sh", "-c", counting))
			k.change(config)
			id := n.run(k.sandbox, config)
			eventually(t, "it counts", func() bool { return strings.Contains(n.logText(id), "stdout F 3") })
			at, err := n.checkpoint(t.Context(), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			unpack(t, at, dir)
			if owner := ownerIn(t, filepath.Join(dir, "rootfs-diff.tar"), "data/count"); owner != 0 {
				t.Errorf("a file of the container's root belongs to %d", owner)
			}
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			n.isUnharmed(id, at)
		})
	}
}

// ownerIn returns whom a file in an archive belongs to.
func ownerIn(t testing.TB, archive, name string) int {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			return h.Uid
		}
	}
}
