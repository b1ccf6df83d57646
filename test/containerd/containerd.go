// Package containerd runs a real containerd, from Debian's packages, for tests and benchmarks: with a socket, state,
// configuration, images and a network of its own, so that nothing of it lies outside its directory but its bridge, and
// a containerd that the machine has already never notices. It needs root.
//
//	d, err := containerd.New(dir, "bridge-1")
//	err = d.Start(ctx)        // it answers, and has BoxImage and UserImage
//	... d.Endpoint() ...
//	err = d.End()             // fails when something still ran in it, or is still mounted
package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PodRange is where pods have their addresses: a range for examples, which no machine of ours is in.
const PodRange = "198.51.100.0/24"

// OtherHandler is a second handler of the runtime, for runtime classes. The first is the default.
const OtherHandler = "other"

// configuration is what containerd 1.6 and later understand. Images are copied, not overlaid, so that any file
// system will do, and the first program of a sandbox is an image that comes with the Daemon.
const configuration = `version = 2
root = "DIR/root"
state = "DIR/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "DIR/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + BoxImage + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.` + OtherHandler + `]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "DIR/cni"
`

// network gives each pod an address on a bridge that only the pods of one Daemon are on.
const network = `{"cniVersion": "0.4.0", "name": "BRIDGE", "plugins": [{"type": "bridge", "bridge": "BRIDGE",
  "ipam": {"type": "host-local", "dataDir": "DIR/ipam", "ranges": [[{"subnet": "` + PodRange + `"}]]}}]}`

// Overlay makes a configuration in which images are overlaid.
func Overlay(configuration string) string {
	return strings.Replace(configuration, `snapshotter = "native"`, `snapshotter = "overlayfs"`, 1)
}

// Daemon is a containerd. Set Env and Log, if at all, before it starts.
type Daemon struct {
	// Env is its environment; nil is that of this process.
	Env []string
	// Log takes what it has to say.
	Log io.Writer

	dir    string
	bridge string
	filled bool
	proc   *os.Process
	exited chan struct{}
}

// Missing says what a machine lacks that a Daemon needs; nil if it has everything.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("containerd needs root")
	}
	for _, program := range []string{"containerd", "ctr", "runc", "ip", "/bin/busybox", "/usr/lib/cni/bridge"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: run `make deps` first", err)
		}
	}
	return nil
}

// New makes the configuration of a daemon in a directory that need not be there. The name of the bridge is one that no
// other interface of the machine has. Changes are made to the configuration, in turn.
func New(dir, bridge string, changes ...func(string) string) (*Daemon, error) {
	d := &Daemon{dir: dir, bridge: bridge, Log: io.Discard}
	fill := strings.NewReplacer("DIR", dir, "BRIDGE", bridge)
	text := configuration
	for _, change := range changes {
		text = change(text)
	}
	for name, text := range map[string]string{"config.toml": text, "cni/10-test.conflist": network} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), //nolint:gosec // as CNI's own
			os.WriteFile(path, []byte(fill.Replace(text)), 0o600)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Endpoint is where it serves CRI.
func (d *Daemon) Endpoint() string { return "unix://" + d.socket() }

func (d *Daemon) socket() string { return filepath.Join(d.dir, "sock") }

// Ctr runs containerd's own client, in the namespace that CRI uses, and returns what it printed.
func (d *Daemon) Ctr(args ...string) (string, error) {
	args = append([]string{"--address", d.socket(), "--namespace", "k8s.io"}, args...)
	out, err := exec.Command("ctr", args...).CombinedOutput() //nolint:gosec // what the caller says
	return string(out), err
}

// Start starts the daemon, waits until it answers, and gives it its images if this is its first start.
func (d *Daemon) Start(ctx context.Context) error {
	cmd := exec.Command("containerd", "--config", filepath.Join(d.dir, "config.toml")) //nolint:gosec // our own file
	cmd.Env = d.Env
	cmd.Stdout, cmd.Stderr = d.Log, d.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Its log says why.
		close(exited)
	}()
	d.proc, d.exited = cmd.Process, exited
	if err := d.answers(ctx); err != nil {
		return err
	}
	if d.filled {
		return nil
	}
	archive := filepath.Join(d.dir, "images.tar")
	if err := WriteImages(archive); err != nil {
		return err
	}
	if out, err := d.Ctr("images", "import", archive); err != nil {
		return fmt.Errorf("import: %w\n%s", err, out)
	}
	d.filled = true
	return nil
}

// answers waits until the daemon answers.
func (d *Daemon) answers(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := d.Ctr("version")
		if err == nil {
			return nil
		}
		select {
		case <-d.exited:
			return errors.New("containerd has ended; its log says why")
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer: %w: %s", ctx.Err(), out)
		case <-tick.C:
		}
	}
}

// Kill ends the daemon as a crash would. What it runs goes on.
func (d *Daemon) Kill() error {
	if err := d.proc.Kill(); err != nil {
		return err
	}
	<-d.exited
	return nil
}

// End ends the daemon and removes what it has left on the machine, except for its directory. It fails when a container
// still runs.
func (d *Daemon) End() error {
	if d.proc == nil {
		return nil
	}
	var errs []error
	// All pods are gone by now, so only a failure leaves something.
	left, err := d.Ctr("tasks", "ls", "-q")
	if err == nil && left != "" {
		errs = append(errs, fmt.Errorf("containers are left: %s", left))
		for id := range strings.FieldsSeq(left) {
			_, err := d.Ctr("tasks", "rm", "--force", id)
			errs = append(errs, err)
		}
	}
	errs = append(errs, err, d.proc.Signal(syscall.SIGTERM))
	<-d.exited
	// A daemon that was killed may have forgotten a shim that was about to end.
	for _, pid := range shims(d.dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // It may have ended by now.
	}
	if _, err := net.InterfaceByName(d.bridge); err == nil { // there is none before the first pod
		if out, err := exec.Command("ip", "link", "delete", d.bridge).CombinedOutput(); err != nil { //nolint:gosec // ours
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
	}
	for _, path := range mounts(d.dir) {
		errs = append(errs, fmt.Errorf("%s is still mounted", path))
		if out, err := exec.Command("umount", "--lazy", path).CombinedOutput(); err != nil { //nolint:gosec // ours
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
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
	data, _ := os.ReadFile("/proc/self/mountinfo") // Without it the removal of dir tells what is left.
	var paths []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			paths = append(paths, fields[4])
		}
	}
	slices.Reverse(paths)
	return paths
}
