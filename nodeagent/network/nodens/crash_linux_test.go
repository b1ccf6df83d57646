package nodens_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/nodeagent/network/nodens"
)

func TestRootlessHelperKilled(t *testing.T) { asUser(t, testHelperKilled) }

// testHelperKilled: the helper or its spare is killed, again and again; the connections of pods go on, and so do
// calls.
func testHelperKilled(t *testing.T) {
	n, a, _ := twoPods(t, config(t))
	killed := 0
	for round := range 10 {
		killed = bothHelpers(t, killed)[round%2]
		check(t, syscall.Kill(killed, syscall.SIGKILL))
		a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
		attached, err := n.Attached(t.Context())
		check(t, err)
		if len(attached) != 2 {
			t.Fatalf("after the kill, %v is connected", attached)
		}
	}
	bothHelpers(t, killed)
	a.do(order{Ask: "tcp", Addr: served(t, "tcp", outside), Bytes: 1000})
}

// stop stops a process, and waits until it stands.
func stop(t *testing.T, pid int) {
	t.Helper()
	check(t, syscall.Kill(pid, syscall.SIGSTOP))
	eventually(t, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && state[0] != 'T' {
			err = fmt.Errorf("process %d is not stopped: %s", pid, stat)
		}
		return err
	})
}

func TestRootlessHelperHangs(t *testing.T) { asUser(t, testHelperHangs) }

// testHelperHangs: a helper that does not answer is replaced by its spare.
func testHelperHangs(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	podIn(t, n, "a", plain(5))
	stop(t, bothHelpers(t, 0)[0])
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := n.Alive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a helper that hangs: %v", err)
	}
	check(t, n.Close())
	n = open(t, cfg)
	if attached, err := n.Attached(t.Context()); err != nil || len(attached) != 1 {
		t.Errorf("after that, %v is connected, %v", attached, err)
	}
}

func TestRootlessBothHang(t *testing.T) { asUser(t, testBothHang) }

// testBothHang: where the spare does not answer either, also not when the helper has ended, there is a new namespace,
// and pods can be connected to it. The old spare is ended.
func testBothHang(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	a := podIn(t, n, "a", plain(5))
	old := bothHelpers(t, 0)
	stop(t, old[1])
	check(t, syscall.Kill(old[0], syscall.SIGKILL))
	check(t, n.Close())
	n = open(t, cfg)
	if _, err := n.Attach(t.Context(), "a", a.netns, plain(5)); err != nil && !n.Status().Rootless {
		t.Error(err)
	}
	b := servesAll(podIn(t, n, "b", plain(6)))
	b.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
	gone(t, old[1])
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Errorf("process %d goes on", pid)
		}
		return nil
	})
}

func TestRootlessSpareHangsAtTheEnd(t *testing.T) { asUser(t, testSpareHangsAtTheEnd) }

// testSpareHangsAtTheEnd: a spare that hangs for ever ends with the helper, or where the helper has ended before.
func testSpareHangsAtTheEnd(t *testing.T) {
	cfg := config(t)
	for _, killed := range []bool{false, true} {
		n := open(t, cfg)
		old := bothHelpers(t, 0)
		stop(t, old[1])
		if killed {
			check(t, syscall.Kill(old[0], syscall.SIGKILL))
		}
		check(t, n.Close())
		check(t, nodens.Remove(t.Context(), cfg))
		for _, pid := range old {
			gone(t, pid)
		}
	}
}

func TestRootlessReopen(t *testing.T) { asUser(t, testReopen) }

// testReopen: what runs in the kernel goes on while nobody has the namespace open, and the next one finds everything.
func testReopen(t *testing.T) {
	cfg := config(t)
	n, a, _ := twoPods(t, cfg)
	at := served(t, "tcp", outside)
	before := helpers()
	for range 3 {
		check(t, n.Close())
		a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
		if n.Status().Egress == nodens.EgressProcess {
			if got := a.try(order{Ask: "tcp", Addr: at}); !strings.Contains(got.Err, "refused") {
				t.Errorf("the way out, while there is none: %+v", got)
			}
		}
		n = open(t, cfg)
		a.do(order{Ask: "tcp", Addr: at, Bytes: 1000})
	}
	if now := helpers(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the processes were %v and are %v", before, now)
	}
}

func TestRootlessAllKilled(t *testing.T) { asUser(t, testAllKilled) }

// testAllKilled: when helper and spare are killed both, the namespace is made anew, and nothing is left of the old
// one.
func testAllKilled(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	a := podIn(t, n, "a", plain(5))
	killAll(t)
	if err := n.Alive(t.Context()); err == nil {
		t.Error("the namespace lives without a helper")
	}
	check(t, n.Detach(t.Context(), "a")) // There is nothing any more.
	check(t, n.Close())
	n = open(t, cfg)
	_, err := n.Attach(t.Context(), "a", a.netns, plain(5))
	if n.Status().Rootless {
		// Its user namespace is no more.
		if err == nil || !strings.Contains(err.Error(), "user namespace") {
			t.Errorf("the pod of another user namespace: %v", err)
		}
		return
	}
	check(t, err)
	servesAll(podIn(t, n, "b", plain(6)))
	a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
}

// Who opens or removes the namespace while another process does so waits no longer than its context.
func TestWaitForAnotherIsBounded(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o700))
	other, err := os.Open(dir)
	check(t, err)
	defer other.Close()
	check(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the server stops"))
	cfg := nodens.Config{Cluster: "test", Dir: dir, Rootless: true, PodRanges: []netip.Prefix{pods4}}
	_, err = nodens.Open(ctx, cfg)
	for what, err := range map[string]error{"open": err, "remove": nodens.Remove(ctx, cfg)} {
		if err == nil || !strings.Contains(err.Error(), "another process") ||
			!strings.Contains(err.Error(), "server stops") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRootlessOtherProgram(t *testing.T) { asUser(t, testOtherProgram) }

// testOtherProgram: a server of another program than the helper's has helper and spare become its own, in the same
// namespace, while connections of pods go on.
func testOtherProgram(t *testing.T) {
	cfg := config(t)
	n, a, _ := twoPods(t, cfg)
	held, err := n.Dial(t.Context(), "tcp", netip.AddrPort{}, netip.MustParseAddrPort("10.244.0.6:80"))
	check(t, err)
	defer held.Close()
	other := copied(t, "/proc/self/exe")
	own, err := os.Readlink("/proc/self/exe")
	check(t, err)
	eventually(t, func() error { return areOf(own) })
	helper := bothHelpers(t, 0)[0]
	for round := range 6 {
		program := own
		if round%2 == 0 {
			program = other
		}
		if program == own {
			again, err := nodens.Open(t.Context(), cfg)
			check(t, err)
			check(t, again.Close())
		} else {
			cmd := exec.Command(other)
			cmd.Env = append(os.Environ(), "NODENS_TEST=opener")
			cmd.Stderr = os.Stderr
			check(t, cmd.Run())
		}
		eventually(t, func() error { return areOf(program) })
		attached, err := n.Attached(t.Context())
		if err != nil || len(attached) != 2 {
			t.Fatalf("in round %d, %v is connected: %v", round, attached, err)
		}
		a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
		if now := bothHelpers(t, 0)[0]; now != helper {
			t.Errorf("the helper was process %d and is %d", helper, now)
		}
	}
	if _, err := held.Write(make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	check(t, held.(*net.TCPConn).CloseWrite())
	if said, err := io.ReadAll(held); err != nil || !strings.Contains(string(said), " 1000 ") {
		t.Errorf("the connection from before says %q, %v", said, err)
	}
}

// bothHelpers waits until there are a helper and its spare, neither of them one that was killed, and returns them in
// this order. A process that one of them has only just forked has the helper's name for a moment.
func bothHelpers(t *testing.T, killed int) []int {
	t.Helper()
	var both []int
	eventually(t, func() error {
		found := map[string][]int{}
		for _, pid := range helpers() {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			found[string(name)] = append(found[string(name)], pid)
		}
		node, spare := found["monoplane-node\x00"], found["monoplane-spare\x00"]
		if len(node) != 1 || len(spare) != 1 || node[0] == killed || spare[0] == killed {
			return fmt.Errorf("the helper and its spare are %v", found)
		}
		both = []int{node[0], spare[0]}
		return nil
	})
	return both
}

// areOf tells whether helper and spare are there, both of a program.
func areOf(program string) error {
	pids := helpers()
	if len(pids) != 2 {
		return fmt.Errorf("the helper and its spare are %v", pids)
	}
	for _, pid := range pids {
		if of, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || of != program {
			return fmt.Errorf("process %d is of %s, not of %s: %v", pid, of, program, err)
		}
	}
	return nil
}

// openerMain opens the namespace as a server does, and ends.
func openerMain() {
	if _, err := nodens.Open(context.Background(), config4()); err != nil {
		fmt.Fprintln(os.Stderr, "the server of another program:", err)
		os.Exit(1)
	}
}

func TestRootlessRepair(t *testing.T) { asUser(t, testRepair) }

// testRepair: Attach makes a connection whole of which parts are missing, and Detach leaves nothing.
func testRepair(t *testing.T) {
	n := open(t, config(t))
	p := newPod(t, n)
	servesAll(podIn(t, n, "b", plain(6)))
	for round, damage := range []order{{}, {Break: "alias"}, {Break: "address"}, {Break: "route"}, {Break: "down"},
		{Break: "link"}} {
		if round > 0 {
			p.do(damage)
		}
		for range 2 {
			p.attach(n, "a", nodens.AttachConfig{Addresses: addresses(5), Ingress: 1 << 30, Egress: 1 << 30})
		}
		if got := p.try(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000}); got.Err != "" {
			t.Errorf("%+v was not repaired: %s", damage, got.Err)
		}
	}
	// Another address: the one before leads nowhere.
	p.attach(n, "a", plain(9))
	got := p.do(order{Ask: "tcp", Addr: "10.244.0.6:80"}).Text
	attached, err := n.Attached(t.Context())
	check(t, err)
	if !strings.HasPrefix(got, "10.244.0.9:") || fmt.Sprint(attached["a"].Addresses) != fmt.Sprint(addresses(9)) {
		t.Errorf("with another address the pod is %s; connected is %v", got, attached["a"])
	}
	for range 2 {
		check(t, n.Detach(t.Context(), "a"))
		if links := p.do(order{Facts: true}).Links; len(links) != 1 {
			t.Errorf("the pod still has %v", links)
		}
	}
}

func TestRootlessServerKilled(t *testing.T) { asUser(t, testServerKilled) }

// testServerKilled: a process that opens, attaches and detaches is killed at any moment. Whatever is left of it, the
// next one goes on from there; in the end nothing is left.
func testServerKilled(t *testing.T) {
	cfg := config(t)
	for round := range 25 {
		kill := time.Duration(round) * 4 * time.Millisecond // Spread over what the process does.
		server := startServer(t)
		time.Sleep(kill)
		check(t, server.Process.Kill())
		_ = server.Wait()
	}
	n, a, _ := twoPods(t, cfg)
	a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 1000})
	eventually(t, func() error {
		if now := helpers(); len(now) != 2 {
			return fmt.Errorf("the helper and its spare are %v", now)
		}
		return nil
	})
	// The pods of the killed ones are gone with the processes that had them open.
	eventually(t, func() error {
		attached, err := n.Attached(t.Context())
		if err == nil && len(attached) != 2 {
			err = fmt.Errorf("connected is %v", attached)
		}
		return err
	})
}

// serverMain opens the namespace, and connects and disconnects pods until it is killed.
func serverMain() {
	ctx := context.Background()
	n, err := nodens.Open(ctx, config4())
	if err != nil {
		fmt.Fprintln(os.Stderr, "the server that is to be killed:", err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		sandbox := fmt.Sprint("killed", i%5)
		netns, err := n.NewPodNamespace(ctx)
		if err == nil {
			_, err = n.Attach(ctx, sandbox, netns, nodens.AttachConfig{
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, 0, byte(20 + i%5)})},
				HostPorts: []nodens.HostPort{{Network: "tcp", Host: netip.MustParseAddrPort("0.0.0.0:0"), Port: 80}}})
		}
		if err == nil && i%2 == 0 {
			err = n.Detach(ctx, sandbox)
		}
		if err == nil {
			err = netns.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the server that is to be killed:", err)
			os.Exit(1)
		}
	}
}

func killAll(t *testing.T) {
	t.Helper()
	killEach(t, helpers())
	eventually(t, func() error {
		c, err := net.Dial("unix", filepath.Join(stateDir(), "node.sock"))
		if err == nil {
			c.Close()
			return errors.New("somebody listens still")
		}
		return nil
	})
}

// killEach kills processes, of which none sees the end of another and starts one in its place.
func killEach(t *testing.T, pids []int) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
	}
}

// eventually waits for what other processes do.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
