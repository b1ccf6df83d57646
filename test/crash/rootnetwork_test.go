//go:build rootonly

package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/test/containerd"
)

// envMachine is set in a test that runs in a network namespace of its own.
const envMachine = "CRASH_MACHINE"

// networkSettleEvery is after how many rounds everything is deleted and counted.
const networkSettleEvery = 25

// settled is how long the test waits for what takes a fraction of it, also when a start has to wait for a helper that
// hangs.
const settled = 120 * time.Second

// somebody is a user who owns nothing on the machine, and whom no other test has at the time.
func somebody() int { return 1<<20 + os.Getpid() }

// Pods of images, each with a network of its own, come and go behind a Service while everything that they need is
// killed, stopped and starved.
//
// spec: SAFE-1, SAFE-2, NET-1, WORK-4, DEL-10
func TestRootNetworkCrash(t *testing.T) {
	if onMachine(t) {
		tormentNetwork(t, 0)
	}
}

// The same for a user who is not root.
//
// spec: SAFE-1, SAFE-2, NET-1, WORK-4, DEL-10
func TestRootUserNetworkCrash(t *testing.T) {
	if onMachine(t) {
		tormentNetwork(t, somebody())
	}
}

// onMachine says whether the test runs in a network namespace that stands for a machine. If not, it runs the test in
// one: what a cluster does to the machine's network it does to that one.
func onMachine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envMachine) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	runtime.LockOSThread() // the child dies with the thread that has started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), envMachine+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Fatalf("on a machine of its own: %v", err)
	}
	return false
}

// network is a run whose pods have a network of their own.
type network struct {
	*run

	uid       int             // who runs the cluster
	share     string          // what the pods' processes and the test share
	images    string          // the directory of images
	program   string          // monoplane, where the cluster's user gets to it
	sandboxes map[string]bool // all that were seen
	probed    int             // pods that were asked for something
}

func tormentNetwork(t *testing.T, uid int) {
	t.Helper()
	kinds, err := chosenKinds(os.Getenv("MONOPLANE_CRASH_KINDS"), networkKinds)
	if err != nil {
		t.Fatalf("MONOPLANE_CRASH_KINDS: %v", err)
	}
	kinds = possible(t, kinds)
	if uid != 0 { // whose agent talks to no socket of the test, which is root
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k == answers })
	}
	rounds := int(setting(t, "MONOPLANE_CRASH_ROUNDS", 4))
	seed := setting(t, "MONOPLANE_CRASH_SEED", 0)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("MONOPLANE_CRASH_SEED=%d MONOPLANE_CRASH_KINDS=%s", seed, join(kinds))
	n := newNetwork(t, newPlanner(seed, kinds, false), uid)
	began := time.Now()
	fail := func(err error, when string) {
		t.Helper()
		if err != nil {
			t.Fatalf("MONOPLANE_CRASH_SEED=%d, %s: %v\n%s", seed, when, err, n.evidence())
		}
	}
	for ; n.rounds < rounds; n.rounds++ {
		plan, start := n.planner.next(), time.Now()
		fail(n.round(plan), fmt.Sprintf("round %d %+v", n.rounds, plan))
		if took := time.Since(start); took > 20*time.Second {
			t.Logf("round %d took %v: %+v", n.rounds, took.Round(time.Second), plan)
		}
		if n.rounds%networkSettleEvery == networkSettleEvery-1 {
			fail(n.settle(), fmt.Sprintf("after round %d", n.rounds))
			t.Logf("%d rounds in %v, no violation", n.rounds+1, time.Since(began).Round(time.Second))
		}
	}
	fail(n.settle(), "at the end")
	fail(n.down(), "after monoplane down")
	t.Logf("in %v, %d pods in %d sandboxes, %d of them asked:\n%s", time.Since(began).Round(time.Second),
		len(n.history.pods), len(n.sandboxes), n.probed, n.table())
}

func newNetwork(t *testing.T, p *planner, uid int) *network {
	t.Helper()
	r := newRun(t, p)
	n := &network{run: r, uid: uid, share: filepath.Join(r.dir, "share"), images: filepath.Join(r.dir, "images"),
		program: filepath.Join(r.dir, "monoplane"), sandboxes: map[string]bool{}}
	archive := filepath.Join(r.dir, "images.tar")
	copies := map[string]string{binary: n.program, "/proc/self/exe": filepath.Join(n.share, "peer")}
	err := os.Mkdir(n.share, 0o777)
	for from, to := range copies {
		text, e := os.ReadFile(from)
		err = errors.Join(err, e, os.WriteFile(to, text, 0o755))
	}
	err = errors.Join(err, containerd.WriteImages(archive))
	for _, path := range []string{r.dir, r.data, r.backing, n.share, archive} {
		err = errors.Join(err, os.Chown(path, uid, uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := n.command("image", "load", archive, "--image-dir", n.images).CombinedOutput(); err != nil {
		t.Fatalf("image load: %v\n%s", err, out)
	}
	r.up = func(data string) *exec.Cmd {
		return n.command("up", "--data-dir", data, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0",
			"--node-name", "node", "--runtime", "oci", "--image-dir", n.images)
	}
	return n
}

// command is monoplane, run by the cluster's user.
func (n *network) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.program, args...)
	cmd.Env = append(os.Environ(), envDir+"="+n.dir, "HOME="+n.dir)
	if n.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(n.uid), Gid: uint32(n.uid)}}
	}
	return cmd
}

// begin starts the server, and checks that nothing is lost. The client is the caller's.
func (n *network) begin(ctx context.Context) (*server, *client.Client, error) {
	s, err := n.start(0)
	if err != nil {
		return nil, nil, err
	}
	c, err := dial(ctx, n.backing)
	if err != nil {
		return nil, nil, err
	}
	if err := n.verify(ctx, c); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return s, c, nil
}

// round is one life of the server.
func (n *network) round(plan round) error {
	rng := rand.New(rand.NewPCG(n.planner.rng.Uint64(), 3))
	ctx, cancel := context.WithCancel(n.t.Context())
	defer cancel()
	for i, f := range plan.Faults {
		if f.Kind == pauseContainer { // or its pod, which is ready, would never answer again
			plan.Faults[i].For = min(f.For, time.Minute)
		}
	}
	beside, err := n.before(ctx, plan, plan.Early*5) // until it has found its network
	if err != nil {
		return err
	}
	s, c, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	beside.start()
	diskFailed := n.disk.failed.Load()
	loading, unload := context.WithCancel(ctx)
	defer unload()
	wait := n.load(loading, c, rng)
	n.live(loading, c, s, plan)
	byItself := s.ended()
	n.note()
	err = n.end(ctx, s, plan)
	unload()
	wait()
	err = errors.Join(err, n.endCopy(beside))
	n.after()
	n.pauses.endAll()
	if byItself && n.disk.failed.Load() > diskFailed {
		n.ended++
		byItself = false
	}
	// A server without descriptors ends when its etcd cannot open a file, and says so.
	starved := slices.ContainsFunc(plan.Faults, func(f fault) bool { return f.Kind == starve }) &&
		strings.Contains(s.stderr.tail(), "too many open files")
	if byItself && !starved {
		return fmt.Errorf("the server ended by itself")
	}
	return errors.Join(err, n.violation(), n.seen())
}

// endCopy ends a copy and what it has made on the machine, as its operator would.
func (n *network) endCopy(c *copied) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), settled)
	defer cancel()
	err := soon(ctx, func() error {
		if c.server.ended() {
			return nil
		}
		out, err := n.command("down", "--data-dir", c.dir).CombinedOutput() // it may be just starting
		if err != nil {
			return fmt.Errorf("down of a copy: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.end(n.t.Context())
}

// note remembers which sandboxes there are.
func (n *network) note() {
	found, _ := filepath.Glob(filepath.Join(n.data, "nodes", "*", "pods", "pods", "*"))
	for _, dir := range found {
		n.sandboxes[filepath.Base(dir)] = true
	}
}

// seen returns what processes of pods have seen that must not be.
func (n *network) seen() error {
	text, err := os.ReadFile(filepath.Join(n.share, violations))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, errors.New(strings.TrimSpace(string(text))))
}

// settle deletes all pods, and counts what is left on the machine.
//
// spec: DEL-13, SAFE-6
func (n *network) settle() error {
	n.heal()
	ctx, cancel := context.WithTimeout(n.t.Context(), settled)
	defer cancel()
	s, c, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := soon(ctx, func() error { return n.deleteAll(ctx, c) }); err != nil {
		return err
	}
	if err := soon(ctx, n.nothingLeft); err != nil {
		return err
	}
	if err := n.seen(); err != nil {
		return err
	}
	locks, _ := filepath.Glob(filepath.Join(n.share, "lock-*")) // the pattern is right
	for _, name := range locks {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	s.kill()
	return nil
}

func (n *network) deleteAll(ctx context.Context, c *client.Client) error {
	all := &metav1.DeleteCollectionRequest{Namespace: "default"}
	if _, err := c.NetworkPolicies.DeleteCollection(ctx, all); err != nil {
		return err
	}
	if _, err := c.Pods.DeleteCollection(ctx, all); err != nil {
		return err
	}
	list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err == nil && len(list.GetItems()) > 0 {
		first := list.GetItems()[0].GetMetadata().GetName()
		err = fmt.Errorf("%d deletions have not ended, the first of %s", len(list.GetItems()), first)
	}
	return err
}

// down ends the cluster, after which nothing of it is on the machine: first by its server, then without one, since it
// was killed.
func (n *network) down() error {
	for _, killed := range []bool{false, true} {
		s, err := n.start(0)
		if err != nil {
			return err
		}
		if killed {
			s.kill()
		}
		if out, err := n.command("down", "--data-dir", n.data).CombinedOutput(); err != nil {
			return fmt.Errorf("down, its server was killed: %v: %w: %s", killed, err, out)
		}
		<-s.exited
		ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
		defer cancel()
		if err := eventually(ctx, n.nothingOnMachine); err != nil {
			return fmt.Errorf("after down, its server was killed: %v: %w", killed, err)
		}
	}
	return nil
}
