package podnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/podnet"
	"monoplane.dev/nodeagent/network/test/netnstest"
	"monoplane.dev/nodeagent/runtime/oci"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// patience is how long a test waits for what takes a fraction of it.
const patience = time.Minute

// world is a machine's network namespace, which the tests run in, with the network of a node.
type world struct {
	*testing.T
	cfg podnet.Config
	n   *podnet.Network
	// ranges are of its own: tests at the same time are in one namespace.
	ranges []netip.Prefix
}

var worlds atomic.Uint32

func newWorld(t *testing.T) *world {
	t.Helper()
	netnstest.New(t) // skips where namespaces are forbidden
	w := &world{T: t, cfg: podnet.Config{
		Cluster: t.TempDir(), Dir: filepath.Join(t.TempDir(), "network"),
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Log: slog.New(slog.DiscardHandler),
	}}
	w.ranges = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(worlds.Add(1)), 0}), 24)}
	w.n = podnet.New(w.cfg)
	t.Cleanup(func() {
		w.check(w.n.Close())
		w.check(podnet.Remove(context.Background(), w.cfg))
	})
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits until f returns nil.
func (w *world) eventually(f func() error) {
	w.Helper()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sandbox makes a sandbox in which somebody answers at port 80.
func (w *world) sandbox(id string) oci.Sandbox {
	w.Helper()
	ns := netnstest.New(w.T)
	ns.Do(func() error {
		l, err := net.Listen("tcp", ":80")
		if err != nil {
			return err
		}
		w.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, id)
				c.Close()
			}
		}()
		return nil
	})
	return oci.Sandbox{
		ID: id, Namespace: fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), ns.Tid()),
		Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: id, Namespace: "ns"}},
	}
}

func (w *world) attach(s oci.Sandbox) netip.Addr {
	w.Helper()
	all, err := w.n.Attach(w.Context(), s)
	w.check(err)
	if len(all) != 1 || !w.ranges[0].Contains(all[0]) {
		w.Fatalf("%s has the addresses %v", s.ID, all)
	}
	return all[0]
}

// reaches asks who answers at an address, from a sandbox.
func (w *world) reaches(from oci.Sandbox, to netip.Addr, want string) error {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	c, err := w.n.Dial(ctx, from, "tcp", netip.AddrPortFrom(to, 80))
	if err != nil {
		return err
	}
	defer c.Close()
	said, err := io.ReadAll(c)
	if err == nil && string(said) != want {
		err = fmt.Errorf("at %s answers %q, not %q", to, said, want)
	}
	return err
}

// helpers are the processes that hold the node namespace.
func (w *world) helpers() (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	w.check(err)
	for _, path := range all {
		name, _ := os.ReadFile(path)
		dir, _ := os.Readlink(filepath.Join(filepath.Dir(path), "fd", "4"))
		if strings.HasPrefix(string(name), "monoplane-") && dir == w.cfg.Dir {
			var pid int
			_, _ = fmt.Sscanf(path, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// A network connects nothing before it knows its ranges, connects sandboxes then, and finds again what it has
// connected; what nobody has any more is given back. spec: NET-1
func TestLife(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox("a"), w.sandbox("b")
	if err := w.n.Ready(t.Context()); !errors.Is(err, podnet.ErrNoRanges) {
		t.Errorf("ready without ranges: %v", err)
	}
	if _, err := w.n.Attach(t.Context(), a); !errors.Is(err, podnet.ErrNoRanges) {
		t.Errorf("attached without ranges: %v", err)
	}
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
	w.check(w.n.Ready(t.Context()))
	other := []netip.Prefix{netip.MustParsePrefix("10.245.0.0/24")}
	if err := w.n.Configure(t.Context(), other, nil); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("another range: %v", err)
	}
	atA, atB := w.attach(a), w.attach(b)
	if again := w.attach(a); again != atA || atA == atB {
		t.Errorf("the addresses are %s, then %s, and %s of the other one", atA, again, atB)
	}
	w.check(w.reaches(a, atB, "b"))

	// The next process knows of a only.
	w.check(w.n.Close())
	if _, err := w.n.Attach(t.Context(), a); err == nil {
		t.Error("a closed network connects")
	}
	if err := w.n.Ready(t.Context()); err == nil {
		t.Error("a closed network is ready")
	}
	w.n = podnet.New(w.cfg)
	w.check(w.n.Configure(t.Context(), w.ranges, []oci.Sandbox{a}))
	if now := w.attach(a); now != atA {
		t.Errorf("after a restart, the address is %s, not %s", now, atA)
	}
	w.check(w.reaches(a, atA, "a"))
	gone, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := w.n.Dial(gone, a, "tcp", netip.AddrPortFrom(atB, 80)); err == nil {
		c.Close()
		t.Error("a sandbox is reached that was given back")
	}
	w.check(w.n.Detach(t.Context(), "a"))
	w.check(w.n.Detach(t.Context(), "a"))
}

// What is left of a network that was taken away is which addresses its pods have had: in the next one others get them
// last, while somebody may still know them as those of the pods before. A file that was being written when its writer
// was killed goes, too.
//
// spec: NET-1
func TestAddressesOutliveTheNetwork(t *testing.T) {
	w := newWorld(t)
	had := map[netip.Addr]bool{}
	for round := range 3 {
		w.check(w.n.Configure(t.Context(), w.ranges, nil))
		for i := range 2 {
			s := w.sandbox(fmt.Sprint("s", round, i))
			a := w.attach(s)
			if had[a] {
				t.Errorf("the address %s is given a second time, of 251", a)
			}
			had[a] = true
		}
		w.check(w.n.Close())
		w.check(os.WriteFile(filepath.Join(w.cfg.Dir, ".addresses.json.1"), []byte("{"), 0o600))
		w.check(podnet.Remove(t.Context(), w.cfg))
		files, err := os.ReadDir(w.cfg.Dir)
		w.check(err)
		if len(files) != 1 || files[0].Name() != "addresses.json" {
			t.Errorf("the files %v are left", files)
		}
		w.n = podnet.New(w.cfg)
	}
	// A register that cannot be read has nothing to keep.
	w.check(os.WriteFile(filepath.Join(w.cfg.Dir, "addresses.json"), []byte("{"), 0o600))
	w.check(podnet.Remove(t.Context(), w.cfg))
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
}

// When all that holds the namespace is killed, Ready makes it anew with what was connected, and who works in it is
// told.
func TestReadyMends(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox("a"), w.sandbox("b")
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
	_, atB := w.attach(a), w.attach(b)
	var begun, ended atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.n.Serve(ctx, func(ctx context.Context, _ *nodens.Namespace, told []netip.Prefix) error {
			if !slices.Equal(told, w.ranges) {
				t.Errorf("the ranges are %v", told)
			}
			begun.Add(1)
			<-ctx.Done()
			ended.Add(1)
			return ctx.Err()
		})
	}()
	for round := range int32(3) {
		w.eventually(func() error {
			if begun.Load() != round+1 || ended.Load() != round {
				return fmt.Errorf("work began %d times and ended %d times", begun.Load(), ended.Load())
			}
			return w.reaches(a, atB, "b")
		})
		pids := w.helpers()
		if len(pids) == 0 {
			t.Fatal("nobody holds the namespace")
		}
		for _, pid := range pids {
			w.check(syscall.Kill(pid, syscall.SIGSTOP)) // so that none makes up for another
		}
		for _, pid := range pids {
			w.check(syscall.Kill(pid, syscall.SIGKILL))
		}
		w.eventually(func() error {
			if err := w.n.Ready(t.Context()); err != nil {
				return err
			}
			return w.reaches(a, atB, "b")
		})
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Rules that somebody has taken away are there again after a heartbeat.
func TestReadyPutsRulesRight(t *testing.T) {
	w := newWorld(t)
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan *nodens.Namespace, 1)
	err := w.n.Serve(ctx, func(_ context.Context, ns *nodens.Namespace, _ []netip.Prefix) error {
		got <- ns
		stop()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	conn, err := (<-got).NFTables()
	w.check(err)
	conn.FlushRuleset()
	w.check(conn.Flush())
	w.check(w.n.Ready(t.Context()))
	tables, err := conn.ListTables()
	w.check(err)
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"monoplane", "monoplane-hostports"}) {
		t.Errorf("the tables are %v", names)
	}
}

// A helper that hangs for good is replaced by its spare, although nobody waits for longer than a heartbeat does: while
// a network is open, and when one is opened.
func TestHungHelperIsReplaced(t *testing.T) {
	for _, when := range []string{"open", "opened"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a, b := w.sandbox("a"), w.sandbox("b")
			w.check(w.n.Configure(t.Context(), w.ranges, nil))
			_, atB := w.attach(a), w.attach(b)
			for _, pid := range w.helpers() {
				name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				w.check(err)
				if strings.HasPrefix(string(name), "monoplane-node") {
					w.check(syscall.Kill(pid, syscall.SIGSTOP))
					defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
				}
			}
			if when == "opened" {
				w.check(w.n.Close())
				w.n = podnet.New(w.cfg)
			}
			short := func(f func(ctx context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				return f(ctx)
			}
			c := w.sandbox("c")
			if when == "opened" { // A node's agent learns what it waits for, before it gives up to ask.
				_ = short(func(ctx context.Context) error { return w.n.Configure(ctx, w.ranges, []oci.Sandbox{a, b}) })
				if err := w.n.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "is being made") {
					t.Errorf("while the network is being made it says: %v", err)
				}
			}
			w.eventually(func() error {
				err := short(func(ctx context.Context) error {
					return w.n.Configure(ctx, w.ranges, []oci.Sandbox{a, b})
				})
				if err := errors.Join(err, short(w.n.Ready)); err != nil {
					return err
				}
				// The one that is there now is not bound to be quick.
				if _, err := w.n.Attach(t.Context(), c); err != nil {
					return err
				}
				return w.reaches(c, atB, "b")
			})
		})
	}
}

// A namespace that does not answer holds up nobody for longer than he wants to wait: not those who connect sandboxes
// while Ready waits for it, nor those who only look, nor the end.
func TestNobodyWaitsForOneThatHangs(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox("a"), w.sandbox("b")
	w.check(w.n.Configure(t.Context(), w.ranges, nil))
	w.attach(a)
	stopped := w.helpers()
	for _, pid := range stopped {
		w.check(syscall.Kill(pid, syscall.SIGSTOP))
	}
	goOn := func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	defer goOn()
	patient, giveUp := context.WithCancel(t.Context())
	ready := make(chan error, 3)
	go func() { ready <- w.n.Ready(patient) }()
	go func() { _, err := w.n.Attach(patient, b); ready <- err }()
	go func() { ready <- w.n.Detach(patient, "none") }()
	short := func(what string, f func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- f(ctx) }()
		select {
		case err := <-result:
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, podnet.ErrNotHere) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s waits for a namespace that hangs", what)
		}
	}
	short("Ready", w.n.Ready)
	short("Attach", func(ctx context.Context) error { _, err := w.n.Attach(ctx, b); return err })
	short("Detach", func(ctx context.Context) error { return w.n.Detach(ctx, "other") })
	short("Configure", func(ctx context.Context) error { return w.n.Configure(ctx, w.ranges, nil) })
	short("DialFrom", func(ctx context.Context) error {
		_, err := w.n.DialFrom(ctx, "tcp", netip.MustParseAddrPort("192.0.2.1:80"))
		return err
	})
	goOn()
	w.eventually(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		all, err := w.n.Attach(ctx, b)
		if err != nil {
			return err
		}
		return w.reaches(a, all[0], "b")
	})
	giveUp()
	for range cap(ready) {
		<-ready
	}
}
