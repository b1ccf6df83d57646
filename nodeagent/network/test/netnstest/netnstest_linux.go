package netnstest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
)

// inside marks the second run of the tests; its value says whether there is a namespace.
const inside = "MONOPLANE_TEST_NETNS"

// Main runs tests in a new user and network namespace, and returns what os.Exit is to be called with.
func Main(m *testing.M) int {
	if os.Getenv(inside) != "" {
		return m.Run()
	}
	self, err := os.Executable()
	if err != nil {
		return m.Run()
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:gosec,noctx // the test itself
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	runtime.LockOSThread() // the thread that the death signal is tied to
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "tests run without a network namespace of their own:", err)
		return m.Run()
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		return 1
	}
	return 0
}

// NS is a network namespace. It lives until the test ends.
type NS struct {
	t    testing.TB
	work chan func()
}

// New makes a network namespace with its loopback up, or skips the test where that is not allowed.
func New(t testing.TB) *NS {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Skip("user namespaces are not allowed here")
	}
	ns := &NS{t: t, work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and with it the namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		ready <- err
		for f := range ns.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { close(ns.work) })
	ns.Do(func() error {
		lo, err := vnetlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return vnetlink.LinkSetUp(lo)
	})
	return ns
}

// Do runs f on a thread in the namespace, and ends the test when it fails.
func (ns *NS) Do(f func() error) {
	ns.t.Helper()
	if err := ns.Try(f); err != nil {
		ns.t.Fatal(err)
	}
}

// Try is Do for what may fail.
func (ns *NS) Try(f func() error) error {
	done := make(chan error)
	ns.work <- func() { done <- f() }
	return <-done
}

// Tid returns the thread of the namespace, which /proc and netlink know it by.
func (ns *NS) Tid() int {
	var tid int
	ns.Do(func() error { tid = unix.Gettid(); return nil })
	return tid
}

// NFTables opens nftables of the namespace.
func (ns *NS) NFTables() (conn *nftables.Conn, err error) {
	return conn, ns.Try(func() error {
		conn, err = nftables.New(nftables.AsLasting())
		return err
	})
}

// Rules has f use nftables of the namespace, and carries out what it has said there.
func (ns *NS) Rules(f func(*nftables.Conn) error) {
	ns.t.Helper()
	conn, err := ns.NFTables()
	if err != nil {
		ns.t.Fatal(err)
	}
	defer func() { _ = conn.CloseLasting() }()
	if err := errors.Join(f(conn), conn.Flush()); err != nil {
		ns.t.Fatal(err)
	}
}

// Generation returns the number of the ruleset of nftables, which is one more after each transaction.
func (ns *NS) Generation() uint32 {
	ns.t.Helper()
	g, err := nft.Generation(ns.Netfilter)
	if err != nil {
		ns.t.Fatal(err)
	}
	return g
}

// Netfilter opens a netfilter socket of the namespace.
func (ns *NS) Netfilter() (conn *netlink.Conn, err error) {
	return conn, ns.Try(func() error {
		conn, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
}

// Dial connects from an address of the namespace; from any if that is not one.
func (ns *NS) Dial(network, from, to string) (c net.Conn, err error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	if ip := net.ParseIP(from); ip != nil && network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: ip}
	} else if ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return c, ns.Try(func() error {
		c, err = d.DialContext(ns.t.Context(), network, to)
		return err
	})
}

// Serve answers every line of TCP and every datagram that comes to an address, until the test ends. answer is told the
// client's address.
func (ns *NS) Serve(at string, answer func(client, said string) string) {
	ns.t.Helper()
	var l net.Listener
	var p net.PacketConn
	ns.Do(func() (err error) {
		if l, err = new(net.ListenConfig).Listen(ns.t.Context(), "tcp", at); err != nil {
			return err
		}
		p, err = new(net.ListenConfig).ListenPacket(ns.t.Context(), "udp", at)
		return err
	})
	ns.t.Cleanup(func() { _, _ = l.Close(), p.Close() })
	to := func(client net.Addr, said string) string {
		host, _, _ := net.SplitHostPort(client.String())
		return answer(host, said) + "\n"
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // answers each line, so that a test sees that a connection lives
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					_, _ = io.WriteString(c, to(c.RemoteAddr(), s.Text()))
				}
			}()
		}
	}()
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte(to(from, strings.TrimSuffix(string(buf[:n]), "\n"))), from)
		}
	}()
}

// Link connects two namespaces by a pair of interfaces, each with the addresses given, such as 10.0.0.1/32.
func Link(a, b *NS, nameA, nameB string, addrsA, addrsB []string) {
	a.t.Helper()
	tid := b.Tid()
	a.Do(func() error {
		pair := &vnetlink.Veth{
			LinkAttrs: vnetlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: vnetlink.NsPid(tid),
		}
		return vnetlink.LinkAdd(pair)
	})
	a.Up(nameA, addrsA...)
	b.Up(nameB, addrsB...)
}

// Up gives an interface addresses and sets it up.
func (ns *NS) Up(name string, addrs ...string) {
	ns.t.Helper()
	ns.Do(func() error {
		link, err := vnetlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addrs {
			addr, err := vnetlink.ParseAddr(text)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := vnetlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return vnetlink.LinkSetUp(link)
	})
}

// Route adds a route over an interface, by a neighbour (empty for none), with a source address (empty for any).
func (ns *NS) Route(name, to, via, src string) {
	ns.t.Helper()
	ns.Do(func() error {
		link, err := vnetlink.LinkByName(name)
		if err != nil {
			return err
		}
		dst, err := vnetlink.ParseIPNet(to)
		if err != nil {
			return err
		}
		r := &vnetlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: net.ParseIP(via), Src: net.ParseIP(src)}
		if r.Gw != nil {
			r.Flags = int(vnetlink.FLAG_ONLINK)
		} else {
			r.Scope = vnetlink.SCOPE_LINK
		}
		if err := vnetlink.RouteAdd(r); err != nil {
			return fmt.Errorf("route to %s: %w", to, err)
		}
		return nil
	})
}

// Forwards makes the namespace a router, of which every refusal of a datagram is to be seen.
func (ns *NS) Forwards() {
	ns.t.Helper()
	ns.Sysctl("net/ipv4/ip_forward", "1")
	ns.Sysctl("net/ipv6/conf/all/forwarding", "1")
	ns.Sysctl("net/ipv4/icmp_ratelimit", "0")
	ns.Sysctl("net/ipv6/icmp/ratelimit", "0")
}

// Sysctl writes a setting of the namespace, such as net/ipv4/ip_forward. Settings belong to the namespace of the
// thread that opens them.
func (ns *NS) Sysctl(name, value string) {
	ns.t.Helper()
	ns.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
}
