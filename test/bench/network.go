package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/vishvananda/netlink"

	"monoplane.dev/nodeagent/network/nodens"
)

// Addresses of the group network.
const (
	benchPods    = "10.211.0.0/24"
	benchPodA    = "10.211.0.3"
	benchPodB    = "10.211.0.4"
	bareA, bareB = "192.0.2.1", "192.0.2.2"
	benchPort    = ":5201"
	// usualSegment is the size of the pieces in which Linux hands on connections over links as they are made, in bytes.
	usualSegment = 64 << 10
)

// benchNetwork sends through the pod network as it is without root and as root, and beside it through a bare veth pair
// between two of the same kind of namespaces. Nothing of the machine's own network is touched.
func benchNetwork(ctx context.Context, e *env) error {
	if _, err := exec.LookPath("nsenter"); err != nil {
		fmt.Println("network: skipped: nsenter is not installed")
		return nil
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	cfg := nodens.Config{Cluster: "bench", Dir: dir, PodRanges: []netip.Prefix{netip.MustParsePrefix(benchPods)},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix(benchServiceRange)}, Rootless: true}
	n, err := nodens.Open(ctx, cfg)
	if err != nil {
		fmt.Println("network: skipped:", err)
		return nil
	}
	defer func() {
		_ = n.Close()
		if err := nodens.Remove(context.WithoutCancel(ctx), cfg); err != nil {
			fmt.Fprintln(os.Stderr, "bench: network:", err)
		}
	}()
	user, err := n.UserNamespace(ctx)
	if err != nil {
		return err
	}
	defer user.Close()
	// A pod each for the network and for the bare pair, since a namespace has its own links.
	var ends [4]*inNamespace
	for i, sandbox := range []string{"a", "b", "", ""} {
		netns, err := n.NewPodNamespace(ctx)
		if err != nil {
			return err
		}
		defer netns.Close()
		if sandbox != "" {
			address := netip.MustParseAddr([]string{benchPodA, benchPodB}[i])
			if _, err := n.Attach(ctx, sandbox, netns, nodens.AttachConfig{Addresses: []netip.Addr{address}}); err != nil {
				return err
			}
		}
		if ends[i], err = enterNamespace(user, netns); err != nil {
			return err
		}
		defer ends[i].close()
	}
	a, b, c, d := ends[0], ends[1], ends[2], ends[3]
	if _, err := c.do(inOrder{Peer: d.pid, MTU: n.Status().MTU}); err != nil {
		return fmt.Errorf("the bare veth pair: %w", err)
	}
	if _, err := d.do(inOrder{Up: true}); err != nil {
		return fmt.Errorf("the bare veth pair: %w", err)
	}
	for _, server := range []*inNamespace{b, d} {
		if _, err := server.do(inOrder{Serve: benchPort}); err != nil {
			return err
		}
	}
	size := int64(1 << 30)
	rounds := 13
	if e.quick {
		size, rounds = 64<<20, 2
	}
	send := func(from *inNamespace, to string) func(int) (float64, error) {
		return func(int) (float64, error) { return from.do(inOrder{Send: to, Bytes: size}) }
	}
	bare := send(c, bareB+benchPort)
	p, err := paired(rounds, send(a, benchPodB+benchPort), bare)
	if err != nil {
		return err
	}
	e.gigabits("pod to pod", p, "bare veth pair", 0.9)
	if err := benchRootPods(e, rounds, size, n.Status().MTU, bare); err != nil {
		return err
	}
	err = benchServices(ctx, e, n, rounds, func(to string) func(int) (float64, error) { return send(a, to) }, bare)
	if err != nil {
		return err
	}
	if err := benchPodNames(ctx, e, n, a); err != nil {
		return err
	}
	// Somewhere else is this machine: an address of its own, but not its loopback, which pods have themselves.
	machine := ""
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, at := range addrs {
			if p, err := netip.ParsePrefix(at.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
				machine = p.Addr().String()
			}
		}
	}
	if machine == "" {
		fmt.Println("network, egress: skipped: the machine has no address but its loopback's")
		return nil
	}
	elsewhere, err := sink(machine + ":0")
	if err != nil {
		return err
	}
	defer elsewhere.Close()
	if p, err = paired(rounds, send(a, elsewhere.Addr().String()), bare); err != nil {
		return err
	}
	e.gigabits("pod to elsewhere, without root", p, "bare veth pair", 0.6)
	to := elsewhere.Addr().String()
	return benchUserNetworks(ctx, e, rounds, size/4, to, func(int) (float64, error) {
		return a.do(inOrder{Send: to, Bytes: size / 8})
	})
}

// gigabits prints a rate of bytes that should reach a share of another. The processor time is that of other processes
// and of the kernel, and not known.
func (e *env) gigabits(name string, p pair, limitName string, share float64) {
	text := func(rate float64) string { return fmt.Sprintf("%.1f Gbit/s", rate*8/1e9) }
	e.print(row{name: name, measured: text(p.got), limit: limitName + " " + text(p.limit), ratio: p.ratio,
		target: fmt.Sprintf(">= %.2f", share), met: p.ratio >= share})
}

// inNamespace is this program in a network namespace, which does one thing after another.
type inNamespace struct {
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// inOrder is what it is told.
type inOrder struct {
	Serve string // An address to receive on.
	Send  string // An address to send Bytes to.
	Bytes int64
	// Ask is a server of names that is asked so many Questions by several at the same time, or by one Alone, who tells
	// the 99th percentile in seconds.
	Ask       string
	Questions int
	Alone     bool
	Peer      int // A process to whose namespace a veth is to lead.
	MTU       int
	Up        bool // The end of a veth that another has made.
	// Machine is the directory of a node namespace that is opened as root, on a machine whose link has MTU.
	// What is sent afterwards goes from one of the pods.
	Machine string
	// Services is how many the machine gets beside one of the other pod.
	Services int
}

type inAnswer struct {
	Rate float64
	Err  string
}

// inNamespaceVariable tells the program that it is one.
const inNamespaceVariable = "MONOPLANE_BENCH_NAMESPACE"

func enterNamespace(user, netns *os.File) (*inNamespace, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nsenter", "--user=/proc/self/fd/4", "--preserve-credentials", "--net=/proc/self/fd/3", "--",
		self)
	cmd.ExtraFiles = []*os.File{netns, user}
	return startInNamespace(cmd)
}

// startInNamespace starts this program by a command that puts it into a network namespace.
func startInNamespace(cmd *exec.Cmd) (*inNamespace, error) {
	cmd.Env = append(os.Environ(), inNamespaceVariable+"=1")
	cmd.Stderr = os.Stderr
	p := &inNamespace{cmd: cmd}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *inNamespace) close() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// do returns bytes or answers a second, where something was sent or asked.
func (p *inNamespace) do(o inOrder) (float64, error) {
	if err := json.NewEncoder(p.in).Encode(o); err != nil {
		return 0, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return 0, fmt.Errorf("the process in the namespace: %w", err)
	}
	var a inAnswer
	if err := json.Unmarshal(line, &a); err != nil {
		return 0, err
	}
	if a.Err != "" {
		return 0, errors.New(a.Err)
	}
	return a.Rate, nil
}

// serveOrders is the process in the namespace.
func serveOrders() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	ctx := context.Background()
	var m machine
	defer func() {
		if err := m.close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench: network:", err)
		}
	}()
	var o inOrder
	for in.Decode(&o) == nil {
		var a inAnswer
		if err := a.carryOut(ctx, &m, o); err != nil {
			a.Err = err.Error()
		}
		_ = out.Encode(a)
		o = inOrder{}
	}
}

func (a *inAnswer) carryOut(ctx context.Context, m *machine, o inOrder) (err error) {
	switch {
	case o.Machine != "":
		err = m.open(ctx, o.Machine, o.MTU)
	case o.Services > 0:
		_, err = applyServices(ctx, m.node, o.Services)
	case o.Send != "" && m.node != nil:
		a.Rate, err = m.pods[0].do(o)
	case o.Serve != "":
		_, err = sink(o.Serve)
	case o.Ask != "" && o.Alone:
		var worst time.Duration
		_, worst, err = latency(o.Ask, o.Questions)
		a.Rate = worst.Seconds()
	case o.Ask != "":
		a.Rate, err = askMany(o.Ask, o.Questions)
	case o.Send != "":
		a.Rate, err = sendBytes(o.Send, o.Bytes)
	case o.Peer != 0:
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "bare", o.MTU
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "bare", uint32(o.MTU), netlink.NsPid(o.Peer)
		if err = netlink.LinkAdd(veth); err == nil {
			err = bareUp(bareA)
		}
	case o.Up:
		err = bareUp(bareB)
	}
	return err
}

func bareUp(address string) error {
	link, err := netlink.LinkByName("bare")
	if err != nil {
		return err
	}
	at, err := netlink.ParseAddr(address + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, at); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// sink receives, and says a byte when all has come.
func sink(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 256<<10)
				for {
					if _, err := c.Read(buf); err != nil {
						break
					}
				}
				_, _ = c.Write([]byte{1})
			}()
		}
	}()
	return l, nil
}

// sendBytes returns the bytes a second of a transfer, to the end.
func sendBytes(to string, size int64) (float64, error) {
	c, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begun := time.Now()
	block := make([]byte, 256<<10)
	for left := size; left > 0; left -= int64(len(block)) {
		if _, err := c.Write(block); err != nil {
			return 0, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c, block[:1]); err != nil {
		return 0, err
	}
	return float64(size) / time.Since(begun).Seconds(), nil
}
