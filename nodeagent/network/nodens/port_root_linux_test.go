//go:build rootonly

package nodens_test

import (
	"errors"
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
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
	"monoplane.dev/nodeagent/network/nodens"
)

// Addresses of IPv6 of the machine and its neighbour.
const lan6, neighbour6 = "2001:db8:2::2", "2001:db8:2::1"

// world6 is world where the machine and its neighbour have addresses of IPv6, too, if there are any.
func world6(t *testing.T) *pod {
	t.Helper()
	w := world(t)
	if len(addresses(5)) > 1 {
		w.do(order{Take: neighbour6 + "/64", On: "lan1"})
		lan0 := linkOf(t, "lan0")
		check(t, netlink.AddrAdd(lan0, &netlink.Addr{IPNet: ipnet(lan6 + "/64"), Flags: unix.IFA_F_NODAD}))
		check(t, netlink.RouteAdd(&netlink.Route{LinkIndex: lan0.Attrs().Index, Gw: net.ParseIP(neighbour6)}))
	}
	return w
}

// clients are processes of the neighbour, who come to the machine's ports from outside.
func clients(t *testing.T) func() *pod {
	w := world6(t)
	return func() *pod { return enter(t, nil, w.netns) }
}

// sees checks that an answer says that its client was seen by its own address.
func sees(t *testing.T, where, answer string) {
	t.Helper()
	if got := clientIn(answer); got != neighbour && got != neighbour6 {
		t.Errorf("%s: the pod has seen its client as %q", where, answer)
	}
}

// balanced are ports as those of a node port and of the address of a load balancer.
func balanced() (all []nodens.PortConfig) {
	for _, network := range []string{"tcp", "udp"} {
		all = append(all,
			nodens.PortConfig{Network: network, Listen: netip.MustParseAddrPort("[::]:8081"),
				Targets: []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:8081")}},
			nodens.PortConfig{Network: network, Listen: netip.MustParseAddrPort(lan + ":8082"),
				Targets: []netip.AddrPort{netip.MustParseAddrPort(lan + ":8082")},
				Arrival: netip.AddrPortFrom(nodens.ArrivalAddress(pods4), 8082)})
	}
	return all
}

// balance begins the balanced ports, which lead to the pod of 10.244.0.5.
func balance(t *testing.T, n *nodens.Namespace) []*nodens.Port {
	t.Helper()
	translate(t, n, "10.244.0.1", 8081, "10.244.0.5", 80)
	translate(t, n, nodens.ArrivalAddress(pods4).String(), 8082, "10.244.0.5", 80)
	return change(t, n, nil, balanced())
}

// change ends ports and begins others.
func change(t *testing.T, n *nodens.Namespace, end []*nodens.Port, begin []nodens.PortConfig) []*nodens.Port {
	t.Helper()
	ports, errs := n.ChangePorts(t.Context(), end, begin)
	check(t, errors.Join(errs...))
	return ports
}

// shut does what the end of a server does.
func shut(t *testing.T, n *nodens.Namespace, ports []*nodens.Port) {
	t.Helper()
	for _, p := range ports {
		p.Release()
	}
	check(t, n.Close())
}

// TestRootPortsLiveOn: connections and flows of clients outside go on while no server runs, through the ports of pods
// and of Services, and there are new ones; so it is while the next server has not said yet what is to be served.
//
// spec: NET-1
func TestRootPortsLiveOn(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	cfg := config(t)
	n := open(t, cfg)
	a := servesAll(podIn(t, n, "a", onHost(5)))
	translate(t, n, lan, 8082, "10.244.0.5", 80)
	serves := balance(t, n)

	ports := []string{lan + ":8090", lan + ":8081", lan + ":8082"}
	if len(addresses(5)) > 1 {
		ports = append(ports, "["+lan6+"]:8090")
	}
	one := client()
	tcp, udp := map[string]*pod{}, map[string]*pod{}
	for _, port := range ports {
		tcp[port], udp[port] = client(), client()
		tcp[port].do(order{Hold: 1, Addr: port})
		udp[port].do(order{Hold: 1, By: "udp", Addr: port})
	}
	works := func(when string) {
		t.Helper()
		for _, port := range ports {
			where := when + ", " + port
			sees(t, where+" flow", udp[port].do(order{Talk: true}).Text)
			for _, network := range []string{"tcp", "udp"} {
				sees(t, where+" "+network, one.do(order{Ask: network, Addr: port, Bytes: 1 << 20}).Text)
			}
		}
	}
	works("in the beginning")
	for range 2 {
		shut(t, n, serves)
		works("without a server")
		n = open(t, cfg)
		works("before it is known what is served")
		a.attach(n, "a", onHost(5))
		works("with host ports")
		serves = change(t, n, nil, balanced())
		works("with a new server")
	}
	for _, port := range ports {
		sees(t, "at last, "+port, tcp[port].do(order{Finish: true}).Text)
	}
}

// refused checks that nobody answers at a port, at once.
func refused(t *testing.T, when string, client *pod, port string) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		if got := client.try(order{Ask: network, Addr: port}); !strings.Contains(got.Err, "refused") {
			t.Errorf("%s, %s by %s: %+v; want it refused", when, port, network, got)
		}
	}
}

// TestRootPortsEnd: with a port its connections end, and what is on its way to them does not come to who has the port
// next as if it was theirs.
func TestRootPortsEnd(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	n := open(t, config(t))
	servesAll(podIn(t, n, "a", onHost(5)))
	const port = lan + ":8090"
	one, tcp, udp := client(), client(), client()
	tcp.do(order{Hold: 1, Addr: port})
	udp.do(order{Hold: 1, By: "udp", Addr: port})
	udp.do(order{Talk: true})
	check(t, n.Detach(t.Context(), "a"))
	refused(t, "after the pod", one, port)
	if got := tcp.try(order{Finish: true}); !strings.Contains(got.Err, "reset") {
		t.Errorf("a connection to a pod that is gone: %+v; want a reset", got)
	}
	if got := udp.try(order{Talk: true}); !strings.Contains(got.Err, "refused") {
		t.Errorf("a flow to a pod that is gone: %+v; want it refused", got)
	}

	servesAll(podIn(t, n, "b", onHost(6)))
	tcp.do(order{Hold: 1, Addr: port})
	udp.do(order{Talk: true})
	check(t, n.Detach(t.Context(), "b"))
	c := servesAll(podIn(t, n, "c", onHost(7)))
	if got := tcp.try(order{Finish: true}); !strings.Contains(got.Err, "reset") {
		t.Errorf("a connection to a pod before: %+v; want a reset", got)
	}
	sees(t, "a flow to the next pod", udp.do(order{Talk: true}).Text)
	if got := c.do(order{Heard: true}).Text; !strings.Contains(got, neighbour+":") {
		t.Errorf("the next pod has heard from %q", got)
	}
	sees(t, "the next pod", one.do(order{Ask: "tcp", Addr: port}).Text)
}

// TestRootPortsLapse: what a server before has served ends when it is known that nobody wants it any more, or when
// somebody else has it.
func TestRootPortsLapse(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", onHost(5)))
	serves := balance(t, n)
	reopen := func() {
		t.Helper()
		shut(t, n, serves)
		n = open(t, cfg)
		for _, port := range []string{lan + ":8090", lan + ":8081", lan + ":8082"} {
			sees(t, "after a restart, "+port, one.do(order{Ask: "tcp", Addr: port}).Text)
		}
	}
	reopen()
	serves = change(t, n, nil, balanced()[:1]) // The node port of TCP.
	sees(t, "a port that is wanted", one.do(order{Ask: "tcp", Addr: lan + ":8081"}).Text)
	refused(t, "not wanted", one, lan+":8082")
	sees(t, "another's port", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
	serves = append(serves, change(t, n, nil, balanced()[1:])...)

	reopen()
	n.RetainPorts(func(sandbox string) bool { return sandbox == "a" })
	sees(t, "of a pod that is there", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
	n.RetainPorts(func(string) bool { return false })
	refused(t, "of a pod that is not", one, lan+":8090")
	sees(t, "a Service's port", one.do(order{Ask: "tcp", Addr: lan + ":8081"}).Text)

	servesAll(podIn(t, n, "b", onHost(6)))
	check(t, n.Close())
	n = open(t, cfg)
	sees(t, "of another pod", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
	check(t, n.Detach(t.Context(), "b"))
	refused(t, "of a pod that is disconnected", one, lan+":8090")
}

// TestRootPortsOfANetworkBefore: a flow does not go on to where the pod was whose network has been removed.
func TestRootPortsOfANetworkBefore(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", onHost(5)))
	udp := client()
	udp.do(order{Hold: 1, By: "udp", Addr: lan + ":8090"})
	sees(t, "the first pod", udp.do(order{Talk: true}).Text)
	check(t, n.Close())
	check(t, nodens.Remove(t.Context(), cfg))
	n = open(t, cfg)
	servesAll(podIn(t, n, "b", onHost(6)))
	sees(t, "the next pod", udp.do(order{Talk: true}).Text)
}

// TestRootPortsTaken: where somebody else has taken a port while no server ran, clients come to who has it.
func TestRootPortsTaken(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", onHost(5)))
	shut(t, n, balance(t, n))
	l, err := net.Listen("tcp", ":8081")
	check(t, err)
	n = open(t, cfg)
	_, errs := n.ChangePorts(t.Context(), nil, balanced()[:1])
	if !errors.Is(errs[0], unix.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", errs[0])
	}
	check(t, l.Close())
	refused(t, "when that has ended", one, lan+":8081")
	sees(t, "another port", one.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
}

// TestRootPortsOfProcess: the process serves pods and the machine's loopback of IPv6, and lets nobody in whom nobody
// inside could answer.
func TestRootPortsOfProcess(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	n := open(t, config(t))
	a := servesAll(podIn(t, n, "a", onHost(5)))
	b := podIn(t, n, "b", plain(6))
	own := func() (string, error) { return askFrom("tcp", "::1", "[::1]:8090") }
	if _, err := own(); err != nil && len(addresses(5)) > 1 {
		t.Errorf("the machine's own client: %v", err)
	}
	got := b.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text
	if !strings.HasPrefix(got, "10.244.0.6:") {
		t.Errorf("a pod is seen as %s", got)
	}
	w := client()
	const asOther, asNode = "10.244.0.6", "10.244.0.1"
	for _, stranger := range []string{linkLocal, asService, asOther, asNode} {
		w.do(order{Take: stranger + "/32", On: "lan1"})
		w.do(order{Spoof: stranger, Addr: lan + ":8090"})
	}
	sees(t, "the last one", w.do(order{Ask: "udp", Addr: lan + ":8090"}).Text)
	for _, from := range strings.Fields(a.do(order{Heard: true}).Text) {
		if at, err := netip.ParseAddrPort(from); err != nil || at.Addr().Unmap().String() != neighbour {
			t.Errorf("the pod has heard from %s, %v", from, err)
		}
	}
	check(t, n.Close())
	if got, err := own(); !errors.Is(err, unix.ECONNREFUSED) && len(addresses(5)) > 1 {
		t.Errorf("without a server the machine's own client: %q, %v", got, err)
	}
	if got := b.try(order{Ask: "tcp", Addr: lan + ":8090"}); !strings.Contains(got.Err, "refused") {
		t.Errorf("without a server a pod: %+v", got)
	}
}

// TestRootPortsOfOwnPrograms: connections of the machine's own programs to its ports go on while no server runs, and
// there are new ones. Where rules of somebody else judge what the machine sends, the process serves them.
//
// spec: NET-1
func TestRootPortsOfOwnPrograms(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	a := servesAll(podIn(t, n, "a", onHost(5)))
	serves := balance(t, n)
	seen := map[string]string{lan + ":8090": lan, lan + ":8081": lan, lan + ":8082": lan,
		"127.0.0.1:8090": fromLoopback(n), "127.0.0.1:8081": fromLoopback(n), "127.7.7.7:8090": fromLoopback(n)}
	if len(addresses(5)) > 1 {
		seen["["+lan6+"]:8090"] = lan6
	}
	works := func(when string) {
		t.Helper()
		for to, want := range seen {
			for _, network := range []string{"tcp", "udp"} {
				from, err := converseWith(network, to, 1<<20)
				if err != nil || from != want {
					t.Errorf("%s, %s to %s: the pod sees %q, %v; want %s", when, network, to, from, err, want)
				}
			}
		}
	}
	held := map[string]net.Conn{}
	for to := range seen {
		c, err := net.Dial("tcp", to)
		check(t, err)
		defer c.Close()
		held[to] = c
	}
	restart := func(when string, kernel bool) {
		t.Helper()
		works(when)
		shut(t, n, serves)
		if kernel {
			works(when + ", without a server")
		} else if got, err := converseWith("tcp", lan+":8090", 0); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, without a server: %q, %v; want a refusal", when, got, err)
		}
		sees(t, when+", somebody outside", client.do(order{Ask: "tcp", Addr: lan + ":8090"}).Text)
		n = open(t, cfg)
		a.attach(n, "a", onHost(5))
		serves = change(t, n, nil, balanced())
		works(when + ", after a restart")
	}
	restart("in the beginning", true)
	for to, c := range held {
		if got, err := converse(c, 1<<20); !strings.HasPrefix(got, seen[to]) && !strings.HasPrefix(got, "["+seen[to]) {
			t.Errorf("a connection to %s that was there before: %q, %v", to, got, err)
		}
	}
	check(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+nodens.HostLink("test")+"/route_localnet", []byte("0"), 0))
	check(t, n.Verify(t.Context()))
	restart("when somebody has changed a setting of the link", true)

	undo := refuses(t, nftables.ChainHookOutput, &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(nodens.HostLink("test") + "\x00")})
	check(t, n.Verify(t.Context()))
	seen = map[string]string{lan + ":8090": lan, lan + ":8081": lan}
	restart("where somebody judges what the machine sends", false)
	undo()
	check(t, n.Verify(t.Context()))
	restart("where nobody does again", true)
	check(t, n.Detach(t.Context(), "a"))
	if got, err := converseWith("tcp", lan+":8090", 0); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after the pod: %q, %v; want a refusal", got, err)
	}
}

// converseWith asks a server of pods, in datagrams that have to be sent in pieces where the network is "udp", and
// returns which address it has seen.
func converseWith(network, to string, bytes int64) (from string, err error) {
	c, err := net.DialTimeout(network, to, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ask := func(c net.Conn) (string, error) { return converse(c, bytes) }
	if network == "udp" && bytes > 0 {
		ask = sendInPieces
	}
	said, err := ask(c)
	return clientIn(said), err
}

// sendInPieces sends a datagram that no link but the loopback takes whole, and returns the answer.
func sendInPieces(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := strings.Repeat("x", 8000)
	if _, err := c.Write([]byte(sent)); err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if err == nil && !strings.HasSuffix(string(buf[:n]), " "+sent) {
		err = fmt.Errorf("of 8000 bytes there came back %d with the address", n)
	}
	return string(buf[:n]), err
}

// TestRootPortsChangeWays: clients outside are served by the process where the machine does not forward, or where
// rules of somebody else judge what comes to its ports, or what it forwards, and by the kernel when that has changed.
// Flows go on.
func TestRootPortsChangeWays(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	client := clients(t)
	cfg := config(t)
	n := open(t, cfg)
	a := servesAll(podIn(t, n, "a", onHost(5)))
	const port = lan + ":8090"
	one, udp := client(), client()
	udp.do(order{Hold: 1, By: "udp", Addr: port})
	is := func(when string, kernel bool) {
		t.Helper()
		sees(t, when+", a flow", udp.do(order{Talk: true}).Text)
		for _, network := range []string{"tcp", "udp"} {
			sees(t, when+", "+network, one.do(order{Ask: network, Addr: port, Bytes: 1 << 20}).Text)
		}
		check(t, n.Close())
		if kernel {
			sees(t, when+", without a server", one.do(order{Ask: "tcp", Addr: port}).Text)
		} else {
			refused(t, when+", without a server", one, port)
		}
		n = open(t, cfg)
		a.attach(n, "a", onHost(5))
		sees(t, when+", after a restart", udp.do(order{Talk: true}).Text)
	}
	is("in the beginning", true)

	setting := "/proc/sys/net/ipv4/conf/lan0/forwarding"
	check(t, os.WriteFile(setting, []byte("0"), 0))
	check(t, n.Verify(t.Context()))
	is("where the machine does not forward", false)
	check(t, os.WriteFile(setting, []byte("1"), 0))
	check(t, n.Verify(t.Context()))
	check(t, n.Verify(t.Context()))
	is("where it does again", true)
	// A flow of the process that the machine has forgotten before the node namespace has is the kernel's from then on.
	forgetEverything(t)
	sees(t, "a flow that was the process'", udp.do(order{Talk: true}).Text)
	check(t, n.Close())
	sees(t, "a flow that is the kernel's", udp.do(order{Talk: true}).Text)
	n = open(t, cfg)
	a.attach(n, "a", onHost(5))

	for what, hook := range map[string]*nftables.ChainHook{
		"comes to ports": nftables.ChainHookInput, "is forwarded": nftables.ChainHookForward,
	} {
		undo := refuses(t, hook, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte("lan0\x00")},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(80)})
		check(t, n.Verify(t.Context()))
		if got := n.Status().Egress; got != nodens.EgressMasquerade {
			t.Errorf("pods go out by %s", got)
		}
		is("where somebody judges what "+what, false)
		undo()
		check(t, n.Verify(t.Context()))
		is("where nobody judges any more what "+what, true)
	}
}

// refuses has the machine drop what matches at a hook, until undo is called.
func refuses(t *testing.T, hook *nftables.ChainHook, what ...expr.Any) (undo func()) {
	t.Helper()
	return filter(t, &nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4},
		&nftables.Chain{Name: "REFUSES", Hooknum: hook}, append(what, &expr.Verdict{Kind: expr.VerdictDrop})...)
}

// forgetEverything has the machine's connection tracking forget everything.
func forgetEverything(t *testing.T) {
	t.Helper()
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, nil)
	check(t, err)
	defer conn.Close()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		flows, err := conntrack.Flows(conn, family)
		check(t, err)
		for _, f := range flows {
			check(t, conntrack.Forget(conn, f))
		}
	}
}

// TestRootPortsRepaired: what others take away of the kernel's rules for ports is put right.
func TestRootPortsRepaired(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	a := servesAll(podIn(t, n, "a", onHost(5)))
	table := &nftables.Table{Name: nodens.HostTable("test"), Family: nftables.TableFamilyINet}
	for what, damage := range map[string]func(*nftables.Conn){
		"nothing":    func(*nftables.Conn) {},
		"all":        func(c *nftables.Conn) { c.FlushRuleset() },
		"the ports":  func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "ports4"}) },
		"the links":  func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "links4"}) },
		"the others": func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "strangers4"}) },
		"the rules":  func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Table: table, Name: "prerouting"}) },
	} {
		changeRules(t, damage)
		check(t, n.Verify(t.Context()))
		conn, err := nftables.New()
		check(t, err)
		elements, err := conn.GetSetElements(&nftables.Set{Table: table, Name: "strangers4", KeyType: nftables.TypeIPAddr,
			Interval: true})
		if err != nil || len(elements) == 0 {
			t.Errorf("without %s: there are no strangers, %v", what, err)
		}
		check(t, n.Close())
		for _, network := range []string{"tcp", "udp"} {
			sees(t, "without "+what+", "+network, one.do(order{Ask: network, Addr: lan + ":8090"}).Text)
		}
		n = open(t, cfg)
		a.attach(n, "a", onHost(5))
	}
	// A port that comes while the table is away.
	changeRules(t, func(c *nftables.Conn) { c.FlushRuleset() })
	shut(t, n, balance(t, n))
	sees(t, "a port that came", one.do(order{Ask: "tcp", Addr: lan + ":8081"}).Text)
}
