//go:build rootonly

package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/test/containerd"
)

// Of a cluster whose processes are killed, one after another, and whose data directory is removed or not, the next
// start and its down leave nothing on the machine, and nothing happens to the clusters beside it. Rounds as root and
// as a user take turns.
//
// spec: SAFE-6
func TestRootLeftovers(t *testing.T) {
	if !onWholeMachine(t) {
		return
	}
	rounds := int(setting(t, "MONOPLANE_CRASH_ROUNDS", 2))
	seed := setting(t, "MONOPLANE_CRASH_SEED", 0)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	before, err := onIt(nil)
	if err != nil {
		t.Fatal(err)
	}
	grounds := []*ground{newGround(t, 0), newGround(t, 1<<20+4)}
	began := time.Now()
	for i := range rounds {
		if err := grounds[i%2].round(i, rng); err != nil {
			t.Fatalf("MONOPLANE_CRASH_SEED=%d, round %d of user %d: %v", seed, i, grounds[i%2].uid, err)
		}
		t.Logf("%d rounds in %v, nothing left", i+1, time.Since(began).Round(time.Second))
	}
	for _, g := range grounds {
		if err := g.downReadOnly(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	err = soon(ctx, func() error {
		after, err := onIt(nil)
		left := slices.DeleteFunc(difference(before, after), func(s string) bool {
			return strings.HasPrefix(s, "left: mount") || strings.Contains(s, "-claims") // which down leaves there
		})
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("after down on disks that are read-only:\n%s", strings.Join(left, "\n"))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// downReadOnly ends the neighbour, whose server was killed and whose disk can only be read since.
func (g *ground) downReadOnly() error {
	g.neighbour.server.kill()
	data := g.neighbour.data
	err := unix.Mount(data, data, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", data, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		return err
	}
	out, err := g.command("down", "--data-dir", data).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Monoplane has stopped.") {
		return fmt.Errorf("down on a read-only disk: %w\n%s", err, out)
	}
	return nil
}

// onWholeMachine says whether the test runs as the first process of a machine of its own, as far as namespaces make
// one: with its own network, processes and mounts, of which all can be counted, and which all end with it. If not, it
// runs the test on one.
func onWholeMachine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envMachine) != "" {
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		all, unread := mountPoints()
		err = errors.Join(err, unread)
		for _, at := range all {
			if strings.HasPrefix(at, "/tmp/") || strings.HasPrefix(at, "/run/") { // other tests'
				_ = unix.Unmount(at, unix.MNT_DETACH) // it may be gone with them
			}
		}
		for _, m := range [][2]string{{"proc", "/proc"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}} {
			err = errors.Join(err, unix.Mount(m[0], m[1], m[0], 0, ""))
		}
		if err := errors.Join(err, os.Chmod("/tmp", 0o777|os.ModeSticky)); err != nil {
			t.Fatal(err)
		}
		return onMachine(t)
	}
	runtime.LockOSThread() // the child dies with the thread that has started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), envMachine+"=1", "TMPDIR=/tmp")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		t.Fatalf("on a machine of its own: %v", err)
	}
	return false
}

// mountPoints lists where something is mounted.
func mountPoints() (all []string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		all = append(all, strings.Fields(line)[4])
	}
	return all, err
}

// ground is where clusters of one user come and go, beside one that stays.
type ground struct {
	t         *testing.T
	uid       int
	dir       string
	program   string
	neighbour *settler
}

// settler is a cluster with two pods.
type settler struct {
	g      *ground
	data   string
	server *server
}

func newGround(t *testing.T, uid int) *ground {
	t.Helper()
	dir, err := os.MkdirTemp("", "left")
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, uid: uid, dir: dir, program: filepath.Join(dir, "monoplane")}
	archive := filepath.Join(dir, "images.tar")
	text, err := os.ReadFile(binary)
	err = errors.Join(err, os.WriteFile(g.program, text, 0o755), containerd.WriteImages(archive))
	for _, path := range []string{dir, archive} {
		err = errors.Join(err, os.Chown(path, uid, uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	load := g.command("image", "load", archive, "--image-dir", filepath.Join(dir, "images"))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	had := sleepers()
	if g.neighbour, err = g.settle(filepath.Join(dir, "neighbour")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	err = soon(ctx, func() error { // A pod is ready before its script has come to its end.
		if now := sleepers(); now != had+4 {
			return fmt.Errorf("%d processes sleep, which were %d", now, had)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// sleepers counts what pods have started.
func sleepers() (n int) {
	all, _ := alive() // it is asked again
	for _, name := range all {
		if name == "sleep" {
			n++
		}
	}
	return n
}

// command is monoplane, run by the ground's user.
func (g *ground) command(args ...string) *exec.Cmd {
	n := network{run: &run{dir: g.dir}, uid: g.uid, program: g.program}
	cmd := n.command(args...)
	cmd.Dir = g.dir // where it is found again: the test's own may be hidden
	return cmd
}

// settle starts a cluster, and two pods in it: one with a network and mounts of its own, and one of the machine.
func (g *ground) settle(data string) (*settler, error) {
	s := begin(g.t, g.dir, g.command("up", "--data-dir", data, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0",
		"--node-name", "node", "--runtime", "oci", "--image-dir", filepath.Join(g.dir, "images")))
	c := &settler{g: g, data: data, server: s}
	if err := s.untilReady(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.stderr.tail())
	}
	return c, c.with(func(ctx context.Context, api *client.Client) error {
		_, err := api.Pods.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default"})
		if err != nil {
			return err
		}
		memory := &corev1.Volume{Name: "memory", VolumeSource: &corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory"}}}
		for _, p := range []*corev1.PodSpec{
			{Containers: []*corev1.Container{{Name: "main", Image: containerd.BoxImage, Command: []string{"/bin/sh", "-c",
				"sleep 100000 & sleep 100000 & trap exit TERM; wait"},
				VolumeMounts: []*corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}}}},
				Volumes: []*corev1.Volume{memory}},
			// Of which one process has left its parent.
			{Containers: []*corev1.Container{{Name: "main", Image: "host", Command: []string{"/bin/sh", "-c",
				"(setsid sleep 100000 &); exec sleep 100000"}}}},
		} {
			second := int64(1)
			p.TerminationGracePeriodSeconds = &second
			if _, err := api.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
				Metadata: &metav1.ObjectMeta{GenerateName: "p-", Namespace: "default"}, Spec: p}}); err != nil {
				return err
			}
		}
		return soon(ctx, func() error {
			ready, all, err := c.ready(ctx, api)
			if err == nil && (len(ready) != 2 || all != 2) {
				err = fmt.Errorf("of %d pods, %d are ready", all, len(ready))
			}
			return err
		})
	})
}

func (c *settler) with(f func(ctx context.Context, api *client.Client) error) error {
	ctx, cancel := context.WithTimeout(c.g.t.Context(), settled)
	defer cancel()
	api, err := dial(ctx, c.data)
	if err != nil {
		return err
	}
	err = errors.Join(f(ctx, api), api.Close())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, c.server.stderr.tail())
	}
	return err
}

// ready returns the containers of the pods that are ready, and how many pods there are.
func (c *settler) ready(ctx context.Context, api *client.Client) (containers []string, all int, err error) {
	list, err := api.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	for _, p := range list.GetItems() {
		for _, s := range p.GetStatus().GetContainerStatuses() {
			if s.GetReady() && p.GetMetadata().GetDeletionTimestamp() == nil {
				containers = append(containers, s.GetContainerID())
			}
		}
	}
	slices.Sort(containers)
	return containers, len(list.GetItems()), err
}

func (c *settler) containers() (ids []string, err error) {
	err = c.with(func(ctx context.Context, api *client.Client) error {
		var err error
		ids, _, err = c.ready(ctx, api)
		return err
	})
	return ids, err
}

// round is the end of one cluster and the start of the next.
func (g *ground) round(i int, rng *rand.Rand) error {
	before, err := onIt(nil)
	if err != nil {
		return err
	}
	spared, err := g.neighbour.containers()
	if err != nil {
		return err
	}
	had, err := alive()
	if err != nil {
		return err
	}
	c, err := g.settle(filepath.Join(g.dir, fmt.Sprint("data", i)))
	if err != nil {
		return err
	}
	found, _ := filepath.Glob(filepath.Join(c.data, "nodes", "*", "pods", "pods", "*"))
	now, err := alive()
	if err != nil {
		return err
	}
	for p := range had {
		delete(now, p)
	}
	what := "killed"
	victims := kill(now, c.server.process, i/2, rng)
	for _, v := range victims {
		what += " " + now[v]
	}
	<-c.server.exited
	next := c.data
	if i < 2 || rng.IntN(3) > 0 {
		what += ", the directory removed"
		// What is mounted in it is not removed with it.
		if err := os.RemoveAll(c.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
		if rng.IntN(2) > 0 {
			what, next = what+", another one started", c.data+"b"
		}
	}
	if rng.IntN(2) > 0 {
		what += ", beside one that is stopped"
		if err := g.neighbour.server.signal(unix.SIGSTOP); err != nil {
			return err
		}
	}
	err = g.again(next)
	_ = g.neighbour.server.signal(unix.SIGCONT) // it is looked at next
	if err != nil {
		return fmt.Errorf("%s: the next start: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), settled)
	defer cancel()
	err = soon(ctx, func() error {
		after, err := onIt(found)
		if err == nil && !slices.Equal(before, after) {
			err = fmt.Errorf("%s: left, or gone:\n%s", what, strings.Join(difference(before, after), "\n"))
		}
		return err
	})
	if err != nil {
		return err
	}
	if now, err := g.neighbour.containers(); err != nil || !slices.Equal(now, spared) {
		return fmt.Errorf("%s: the neighbour's containers %v were %v, %w", what, now, spared, err)
	}
	g.t.Log(what)
	return errors.Join(os.RemoveAll(c.data), os.RemoveAll(next))
}

// again starts a cluster, which must work, and ends it.
func (g *ground) again(data string) error {
	c, err := g.settle(data)
	if err != nil {
		return err
	}
	if out, err := g.command("down", "--data-dir", data).CombinedOutput(); err != nil {
		return fmt.Errorf("down: %w\n%s", err, out)
	}
	<-c.server.exited
	return nil
}

// kill kills some of a cluster's processes in a random order: the server and the one whose turn it is in any case.
func kill(all map[process]string, server process, turn int, rng *rand.Rand) (victims []process) {
	var others []process
	for p := range all {
		if p != server {
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b process) int { return a.PID - b.PID })
	first := others[turn%len(others)]
	others = slices.DeleteFunc(others, func(p process) bool { return p == first })
	rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	victims = append(others[:rng.IntN(len(others)+1)], first, server)
	rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, v := range victims {
		_ = v.signal(unix.SIGKILL) // it may have ended with another one
	}
	return victims
}

// alive returns the processes of the machine with their names.
func alive() (map[process]string, error) {
	all := map[process]string{}
	err := eachProcess(func(pid int) {
		if p, err := identify(pid); err == nil {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
			all[p] = strings.TrimSpace(string(name))
		}
	})
	return all, err
}

// onIt lists what is on the machine: of control groups, which it shares, those of some sandboxes.
func onIt(sandboxes []string) ([]string, error) {
	var all []string
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		all = append(all, "table "+t.Name)
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		all = append(all, "link "+l.Name)
	}
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	for _, at := range mounts {
		all = append(all, "mount "+at)
	}
	processes, err := alive()
	if err != nil {
		return nil, err
	}
	for p := range processes {
		all = append(all, fmt.Sprint("process ", p)) // its name changes with what it executes
	}
	for _, pattern := range []string{"/run/netns/*", "/run/monoplane-claims/*", "/tmp/monoplane-claims-*/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	if len(sandboxes) == 0 {
		return all, nil
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just been removed
		}
		if err == nil && d.IsDir() && slices.ContainsFunc(sandboxes, func(s string) bool {
			return strings.Contains(d.Name(), filepath.Base(s)[:16])
		}) {
			all = append(all, "cgroup "+path)
		}
		return err
	})
	return all, err
}

// difference returns what only one of two lists has.
func difference(before, after []string) (all []string) {
	for _, s := range after {
		if !slices.Contains(before, s) {
			all = append(all, "left: "+s)
		}
	}
	for _, s := range before {
		if !slices.Contains(after, s) {
			all = append(all, "gone: "+s)
		}
	}
	return all
}
