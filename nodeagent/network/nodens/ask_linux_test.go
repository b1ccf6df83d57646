package nodens_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

// TestRootlessAsk: a pod's connection through the process becomes what the process's own becomes.
//
// spec: NET-1
func TestRootlessAsk(t *testing.T) {
	if !onMachine(t, true) {
		return
	}
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	for _, c := range []struct{ name, to, want string }{
		{"refused", outside + ":9", "connect: connection refused"},
		{"refused, of IPv6", "[" + outside6 + "]:9", "connect: connection refused"},
		{"no way", nowhere + ":9", "connect: no route to host"},
		{"no way, of IPv6", "[" + nowhere6 + "]:9", "connect: no route to host"},
	} {
		if got := a.try(order{Ask: "tcp", Addr: c.to}); !strings.Contains(got.Err, c.want) {
			t.Errorf("%s: %+v; want %s", c.name, got, c.want)
		}
	}
	for _, host := range []string{outside, outside6} {
		at := served(t, "tcp", host)
		a.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20})
		a.do(order{Hold: 100, Addr: at})
		a.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20})
		a.do(order{Drop: true})
	}

	// A server that is too busy to answer. The pod is answered when the server is.
	busy, fill := busyServer(t)
	answered := make(chan answer, 1)
	go func() { answered <- a.try(order{Ask: "tcp", Addr: busy.Addr().String(), Bytes: 1000}) }()
	for begun := time.Now(); !connecting(t, busy.Addr().(*net.TCPAddr).Port); {
		if time.Since(begun) > patience {
			t.Fatal("nobody connects to the server")
		}
	}
	select {
	case got := <-answered:
		t.Fatalf("the pod was answered before the server had: %+v", got)
	default:
	}
	fill.Close()
	go func() {
		for {
			c, err := busy.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 2000)
				for {
					if _, err := c.Read(b); err != nil {
						break
					}
				}
				_, _ = c.Write([]byte("done"))
			}()
		}
	}()
	if got := <-answered; got.Text != "done" {
		t.Errorf("the server that was busy: %+v", got)
	}
}

// TestRootlessNobodyAsks: with the rules of a kernel that has no queues of packets (package helper,
// TestKernelsWithoutQueues), connections of pods are accepted, and reset when there is nobody; all else is as it was.
func TestRootlessNobodyAsks(t *testing.T) {
	if !onMachine(t, true) {
		return
	}
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	conn, err := n.NFTables()
	check(t, err)
	conn.DelChain(&nftables.Chain{Name: "ask", Table: &nftables.Table{Name: "monoplane",
		Family: nftables.TableFamilyINet}})
	check(t, conn.Flush())
	for _, host := range []string{outside, "[" + outside6 + "]", nowhere, "[" + nowhere6 + "]"} {
		got := a.try(order{Ask: "tcp", Addr: host + ":9", Bytes: 1 << 20})
		if !strings.Contains(got.Err, "reset by peer") && !strings.Contains(got.Err, "broken pipe") {
			t.Errorf("where nobody is at %s: %+v; want a connection that ends", host, got)
		}
	}
	for _, host := range []string{outside, outside6} {
		at := served(t, "tcp", host)
		a.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20})
		a.do(order{Hold: 100, Addr: at})
		a.do(order{Finish: true})
	}
	check(t, n.Verify(t.Context())) // Rules that are missing are made again.
	if got := a.try(order{Ask: "tcp", Addr: outside + ":9"}); !strings.Contains(got.Err, "connect: connection refused") {
		t.Errorf("where nobody is, and the process is asked again: %+v", got)
	}
}

// busyServer returns a listener that answers nobody until it accepts, since fill has its only place.
func busyServer(t *testing.T) (l net.Listener, fill net.Conn) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	f := os.NewFile(uintptr(fd), "busy")
	defer f.Close()
	check(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(outside).To4())}))
	check(t, unix.Listen(fd, 0))
	if l, err = net.FileListener(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fill, err = net.Dial("tcp", l.Addr().String())
	check(t, err)
	return l, fill
}

// connecting says whether a socket of this namespace waits to be connected to the port.
func connecting(t *testing.T, port int) bool {
	t.Helper()
	all, err := netlink.SocketDiagTCP(unix.AF_INET)
	check(t, err)
	for _, s := range all {
		if s.State == netlink.TCP_SYN_SENT && int(s.ID.DestinationPort) == port {
			return true
		}
	}
	return false
}

// TestRootlessAskWithin: nobody is asked for what a pod must not reach.
//
// spec: NET-1
func TestRootlessAskWithin(t *testing.T) {
	if !onMachine(t, true) {
		return
	}
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	forbidden, err := net.Listen("tcp", outside+":0")
	check(t, err)
	defer forbidden.Close()

	forbid(t, n, nftables.ChainHookInput, forbidden.Addr().(*net.TCPAddr).Port)
	if got := a.try(order{Ask: "tcp", Addr: forbidden.Addr().String()}); !strings.Contains(got.Err, "refused") {
		t.Errorf("the pod asked what it must not reach: %+v", got)
	}
	own, err := net.Dial("tcp", forbidden.Addr().String())
	check(t, err)
	defer own.Close()
	first, err := forbidden.Accept()
	check(t, err)
	defer first.Close()
	if first.RemoteAddr().String() != own.LocalAddr().String() {
		t.Errorf("%s came before the test itself, %s", first.RemoteAddr(), own.LocalAddr())
	}
}

// forbid refuses connections to a port, where package policies does.
func forbid(t *testing.T, n *nodens.Namespace, hook *nftables.ChainHook, port int) {
	t.Helper()
	const behind = 10
	conn, err := n.NFTables()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Name: "policy", Family: nftables.TableFamilyINet})
	chain := conn.AddChain(&nftables.Chain{Name: "hook", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityRef(behind)})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	}})
	check(t, conn.Flush())
}

func TestRootlessRefusals(t *testing.T) { asUser(t, testRefusals) }

// testRefusals: clients of the machine's ports, who come to pods with their own addresses, learn at once that a policy
// refuses them. The refusal is for an address that is not the node's, but goes to the socket that speaks for it.
func testRefusals(t *testing.T) {
	n := open(t, config(t))
	servesAll(podIn(t, n, "b", plain(6)))
	forbid(t, n, nftables.ChainHookOutput, 81)
	client := netip.MustParseAddrPort("192.0.2.77:0")
	for port, want := range map[uint16]string{80: "", 81: "connection refused"} {
		for _, a := range addresses(6) {
			if !a.Is4() {
				client = netip.MustParseAddrPort("[2001:db8::77]:0")
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			c, err := n.Dial(ctx, "tcp", client, netip.AddrPortFrom(a, port))
			cancel()
			if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
				t.Errorf("port %d of %s, for %s: %s; want %q", port, a, client, got, want)
			}
			if err == nil {
				c.Close()
			}
		}
		client = netip.MustParseAddrPort("192.0.2.77:0")
	}
}
