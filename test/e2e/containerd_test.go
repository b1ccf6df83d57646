//go:build rootonly

package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// containerd is a real containerd of a test's own: nothing of it lies outside its directory but its bridge.
type containerd struct {
	dir    string
	bridge string
	log    *capture
	proc   *os.Process
	exited chan struct{}
}

// containerdConfig is what containerd 1.6 and later understand. Images are copied, not overlaid, so that any file
// system will do, and the first program of a sandbox is an image that the test has made.
const containerdConfig = `version = 2
root = "DIR/root"
state = "DIR/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "DIR/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + boxImage + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "DIR/cni"
`

// bridgeConfig gives each pod an address on a bridge that only the pods of the test are on.
const bridgeConfig = `{"cniVersion": "0.4.0", "name": "BRIDGE", "plugins": [{"type": "bridge", "bridge": "BRIDGE",
  "ipam": {"type": "host-local", "dataDir": "DIR/ipam", "ranges": [[{"subnet": "` + podRange + `"}]]}}]}`

// podRange is a range for examples, which no machine of ours is in.
const podRange = "198.51.100.0/24"

// newContainerd starts a containerd with the images of the tests. Its end fails the test if something still runs in
// it.
func newContainerd(t *testing.T) *containerd {
	t.Helper()
	for _, program := range []string{"containerd", "ctr", "runc", "ip", "/bin/busybox", "/usr/lib/cni/bridge"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: run `make deps` first", err)
		}
	}
	dir := filepath.Join(filepath.Dir(shortDir(t)), "containerd")
	c := &containerd{dir: dir, bridge: fmt.Sprintf("mp-e2e-%d", os.Getpid()), log: &capture{}}
	fill := strings.NewReplacer("DIR", dir, "BRIDGE", c.bridge)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(fill.Replace(text)),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("config.toml", containerdConfig)
	write("cni/10-test.conflist", bridgeConfig)
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("containerd's warnings end with:\n%s", c.log.tail(40, "level=info"))
		}
	})
	c.start(t)
	archive := filepath.Join(dir, "images.tar")
	if err := writeImages(archive); err != nil {
		t.Fatal(err)
	}
	if out, err := c.ctr("images", "import", archive); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	return c
}

func (c *containerd) endpoint() string { return "unix://" + filepath.Join(c.dir, "sock") }

// ctr runs containerd's own client, in the namespace that CRI uses.
func (c *containerd) ctr(args ...string) (string, error) {
	args = append([]string{"--address", filepath.Join(c.dir, "sock"), "--namespace", "k8s.io"}, args...)
	out, err := exec.Command("ctr", args...).CombinedOutput()
	return string(out), err
}

// start starts the daemon and waits until it answers.
func (c *containerd) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command("containerd", "--config", filepath.Join(c.dir, "config.toml"))
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Its log says why.
		close(exited)
	}()
	c.proc, c.exited = cmd.Process, exited
	eventually(t, "containerd", func() (bool, string) {
		out, err := c.ctr("version")
		return err == nil, out + c.log.tail(5)
	})
}

// kill ends the daemon as a crash would. What it runs goes on.
func (c *containerd) kill(t *testing.T) {
	t.Helper()
	if err := c.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.exited
}

// end ends the daemon and removes what it has left on the machine. It fails when a container still runs.
func (c *containerd) end() error {
	if c.proc == nil {
		return nil
	}
	var errs []error
	// All pods are gone by now, so only a failure leaves something.
	left, err := c.ctr("tasks", "ls", "-q")
	if err == nil && left != "" {
		errs = append(errs, fmt.Errorf("containers are left: %s", left))
		for id := range strings.FieldsSeq(left) {
			_, err := c.ctr("tasks", "rm", "--force", id)
			errs = append(errs, err)
		}
	}
	errs = append(errs, err, c.proc.Signal(syscall.SIGTERM))
	<-c.exited
	// A daemon that was killed may have forgotten a shim that was about to end.
	for _, pid := range shims(c.dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // It may have ended by now.
	}
	if _, err := net.InterfaceByName(c.bridge); err == nil { // there is none before the first pod
		if out, err := exec.Command("ip", "link", "delete", c.bridge).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
	}
	for _, path := range mounts(c.dir) {
		errs = append(errs, fmt.Errorf("%s is still mounted", path), syscall.Unmount(path, syscall.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// shims returns the processes that serve the containerd in dir.
func shims(dir string) []int {
	var pids []int
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // The pattern is well-formed.
	for _, path := range commands {
		command, _ := os.ReadFile(path) // A process that has ended has none.
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && strings.Contains(string(command), "containerd-shim") &&
			strings.Contains(string(command), dir+"/sock") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mounts returns what is mounted below dir, the last mount first.
func mounts(dir string) []string {
	data, _ := os.ReadFile("/proc/self/mountinfo") // Without it RemoveAll tells what is left.
	var paths []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			paths = append(paths, fields[4])
		}
	}
	slices.Reverse(paths)
	return paths
}
