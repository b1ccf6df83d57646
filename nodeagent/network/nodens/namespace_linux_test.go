package nodens_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	netlib "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

func ipnet(s string) *net.IPNet {
	n, err := netlib.ParseIPNet(s)
	if err != nil {
		panic(err)
	}
	return n
}

// spec: NET-1
func TestRootlessPods(t *testing.T) {
	asUser(t, func(t *testing.T) { testPods(t, nodens.EgressProcess) })
}

// testPods: pods reach each other, the world and the node; the node reaches them.
func testPods(t *testing.T, way nodens.Egress) {
	n, a, b := twoPods(t, config(t))
	if got := n.Status(); got.Egress != way || got.MTU != mtu || got.Services != (way == nodens.EgressMasquerade) {
		t.Fatalf("the status is %+v; want egress %s, mtu %d", got, way, mtu)
	}
	eth0, size := a.do(order{Facts: true}).Links["eth0"], mtu
	if way == nodens.EgressMasquerade && eth0.Segment != 0 {
		size = largeMTU
	}
	if eth0.MTU != size || eth0.Addresses[0] != "10.244.0.5/32" {
		t.Errorf("eth0 of the pod: %+v; want an MTU of %d", eth0, size)
	}
	for i, to := range addresses(6) {
		for _, network := range []string{"tcp", "udp"} {
			got := a.do(order{Ask: network, Addr: netip.AddrPortFrom(to, 80).String(), Bytes: 1 << 20}).Text
			if from := clientIn(got); from != addresses(5)[i].String() {
				t.Errorf("%s from pod to pod came from %s", network, from)
			}
		}
	}
	t.Run("itself", func(t *testing.T) {
		b.do(order{Ask: "tcp", Addr: "10.244.0.6:80"})
	})
	t.Run("refused", func(t *testing.T) {
		if got := a.try(order{Ask: "tcp", Addr: "10.244.0.6:81"}); !strings.Contains(got.Err, "refused") {
			t.Errorf("a port of a pod where nobody listens: %+v", got)
		}
		// A Service that nobody has translated.
		if got := a.try(order{Ask: "tcp", Addr: "10.96.0.1:443"}); !strings.Contains(got.Err, "refused") {
			t.Errorf("a Service that is none: %+v", got)
		}
		if got := a.try(order{Ask: "tcp", Addr: outside + ":9"}); !strings.Contains(got.Err, "connect: connection refused") {
			t.Errorf("a port elsewhere where nobody listens: %+v", got)
		}
	})
	t.Run("egress", func(t *testing.T) {
		for i, host := range []string{outside, outside6}[:len(addresses(5))] {
			for _, network := range []string{"tcp", "udp"} {
				at := served(t, network, host)
				got := a.do(order{Ask: network, Addr: at, Bytes: 10 << 20}).Text
				_, said, _ := strings.Cut(got, " ")
				if network == "tcp" && said != fmt.Sprint(10<<20) {
					t.Errorf("the server at %s received %s bytes", host, said)
				}
				if clientIn(got) == addresses(5)[i].String() && way == nodens.EgressProcess {
					t.Errorf("%s: the server at %s saw the pod's address", network, host)
				}
			}
		}
	})
	t.Run("node", func(t *testing.T) {
		l, err := n.Listen(t.Context(), netip.MustParseAddrPort("10.244.0.1:53"))
		check(t, err)
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err == nil {
				fmt.Fprint(c, c.RemoteAddr().String())
				c.Close()
			}
		}()
		if got := a.do(order{Ask: "tcp", Addr: "10.244.0.1:53"}).Text; !strings.HasPrefix(got, "10.244.0.5:") {
			t.Errorf("the pod came to the node from %s", got)
		}
		c, err := n.Dial(t.Context(), "tcp", netip.AddrPort{}, netip.MustParseAddrPort("10.244.0.6:80"))
		check(t, err)
		defer c.Close()
		check(t, c.(*net.TCPConn).CloseWrite())
		buf := make([]byte, 100)
		k, err := c.Read(buf)
		check(t, err)
		if got := string(buf[:k]); !strings.HasPrefix(got, "10.244.0.1:") {
			t.Errorf("the node came to the pod from %s", got)
		}
	})
}

// testSegments: pods hand on connections in pieces as large as we want them to be, and with a bound on their bandwidth
// in the usual ones. What they send arrives as it was sent: see converse.
func testSegments(t *testing.T, elsewhere string) {
	const want = 192 << 10
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	eth0 := func() link { return a.do(order{Facts: true}).Links["eth0"] }
	now := eth0()
	if now.Segment == 0 {
		t.Skip("this kernel has no bound of segments of IPv4")
	}
	if now.Segment != want {
		t.Errorf("the pod hands on pieces of %d bytes; want %d", now.Segment, want)
	}
	servesAll(podIn(t, n, "b", plain(6)))
	for _, bound := range []uint64{0, 1 << 33, 0} {
		a.attach(n, "a", nodens.AttachConfig{Addresses: addresses(5), Egress: bound, Ingress: bound})
		for _, to := range []string{"10.244.0.6:80", elsewhere} {
			if got := a.do(order{Ask: "tcp", Addr: to, Bytes: 40 << 20}).Text; !strings.HasSuffix(got, fmt.Sprint(40<<20)) {
				t.Errorf("of %d bytes to %s with the bound %d: %s", 40<<20, to, bound, got)
			}
		}
		size := uint32(want)
		if bound != 0 {
			size = 64 << 10
		}
		if got := eth0().Segment; got != size {
			t.Errorf("with the bound %d the pod hands on pieces of %d bytes; want %d", bound, got, size)
		}
	}
}

func TestRootlessSegments(t *testing.T) {
	asUser(t, func(t *testing.T) { testSegments(t, served(t, "tcp", outside)) })
}

// A pod that opens more connections than it may have of the process' descriptors has them reset: the process can open
// files, and other pods have theirs.
func TestRootlessDescriptors(t *testing.T) {
	if !onMachine(t, true) {
		return
	}
	var was unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	const limit, connections, files = 600, 200, 200
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}))
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	at := served(t, "tcp", outside)
	if got := a.try(order{Hold: connections, Addr: at}); !strings.Contains(got.Err, "reset by peer") {
		t.Errorf("more connections than a pod may have: %+v", got)
	}
	b := podIn(t, n, "b", plain(6))
	b.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20}) // Another pod has room.
	udp := served(t, "udp", outside)
	a.do(order{Ask: "udp", Addr: udp})
	for range files {
		f, err := os.Open(os.DevNull)
		check(t, err)
		defer f.Close()
	}
	a.do(order{Drop: true})
	ask := order{Ask: "tcp", Addr: at, Bytes: 1 << 20}
	got := a.try(ask)
	for begun := time.Now(); got.Err != "" && time.Since(begun) < patience; { // The process sees the ends one by one.
		got = a.try(ask)
	}
	if got.Err != "" {
		t.Errorf("a pod that has given back what it had: %+v", got)
	}
}

func TestRootlessBandwidth(t *testing.T) { asUser(t, testBandwidth) }

// testBandwidth: what a pod receives and sends is bounded.
func testBandwidth(t *testing.T) {
	n := open(t, config(t))
	a := podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5), Ingress: 8_000_000, Egress: 16_000_000})
	if got := a.do(order{Rate: "eth0"}).Text; got != "2000000" {
		t.Errorf("the pod may send %s bytes a second", got)
	}
	b := servesAll(podIn(t, n, "b", plain(6)))
	// 3 MB at 2 MB a second, of which a fifth of a second's worth passes at once: not before a second.
	if took := a.do(order{Ask: "tcp", Addr: "10.244.0.6:80", Bytes: 3 << 20}).Took; took.Seconds() < 1 {
		t.Errorf("3 MB were sent in %s", took)
	}
	servesAll(a)
	if took := b.do(order{Ask: "tcp", Addr: "10.244.0.5:80", Bytes: 2 << 20}).Took; took.Seconds() < 1 {
		t.Errorf("2 MB were received in %s", took)
	}
}

func TestRootlessTableIsFlushed(t *testing.T) {
	if !onMachine(t, true) {
		return
	}
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	testTableInsideIsFlushed(t, n, a, served(t, "tcp", outside))
}

// testVerifyFails has nothing put right, as a helper that does not answer would. The next look does it.
func testVerifyFails(t *testing.T, n *nodens.Namespace) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without time to put anything right: %v", err)
	}
}

// testTableInsideIsFlushed: whoever takes the rules of the node namespace away cuts pods off no longer than until the
// next look.
func testTableInsideIsFlushed(t *testing.T, n *nodens.Namespace, a *pod, outside string) {
	t.Helper()
	conn, err := n.NFTables()
	check(t, err)
	rules := func() (handles []uint64) {
		chains, err := conn.ListChains()
		check(t, err)
		for _, c := range chains {
			all, err := conn.GetRules(c.Table, c)
			check(t, err)
			for _, r := range all {
				handles = append(handles, r.Handle)
			}
		}
		return handles
	}
	before := rules()
	check(t, n.Verify(t.Context()))
	if now := rules(); len(before) == 0 || !slices.Equal(now, before) {
		t.Errorf("where all was right, the rules %v became %v", before, now)
	}
	conn.FlushRuleset()
	check(t, conn.Flush())
	testVerifyFails(t, n)
	check(t, n.Verify(t.Context()))
	if now := rules(); len(now) != len(before) {
		t.Errorf("of %d rules %d are there again", len(before), len(now))
	}
	a.do(order{Ask: "tcp", Addr: outside, Bytes: 1 << 20})
}

func TestRootlessNFTables(t *testing.T) { asUser(t, testNFTables) }

// testNFTables: others have tables of their own in the node namespace, of which they see errors as they are.
func testNFTables(t *testing.T) {
	n := open(t, config(t))
	conn, err := n.NFTables()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Name: "mine", Family: nftables.TableFamilyIPv4})
	set := &nftables.Set{Table: table, Name: "many", KeyType: nftables.TypeIPAddr}
	check(t, conn.AddSet(set, nil))
	var elements []nftables.SetElement
	for i := range 5000 {
		elements = append(elements, nftables.SetElement{Key: []byte{10, 1, byte(i >> 8), byte(i)}})
	}
	for part := range slices.Chunk(elements, 1000) { // A message of netlink has room for 64 KiB.
		check(t, conn.SetAddElements(set, part))
	}
	check(t, conn.Flush())
	got, err := conn.GetSetElements(set)
	check(t, err)
	if len(got) != len(elements) {
		t.Errorf("the set has %d elements; want %d", len(got), len(elements))
	}
	conn.DelChain(&nftables.Chain{Name: "none", Table: table})
	if err := conn.Flush(); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a chain that is not there is deleted: %v; want ENOENT", err)
	}
	tables, err := conn.ListTables() // After an error too.
	check(t, err)
	names := map[string]bool{}
	for _, table := range tables {
		names[table.Name] = true
	}
	if !names["mine"] || !names["monoplane"] || !names[nodens.InsideTable] || len(names) != 3 {
		t.Errorf("the tables are %v", names)
	}
}

func TestRootlessSpoofing(t *testing.T) { asUser(t, testSpoofing) }

// testSpoofing: what a pod sends with the address of another, or of the node, goes nowhere.
func testSpoofing(t *testing.T) {
	n, a, b := twoPods(t, config(t))
	_ = podIn(t, n, "c", plain(7))
	if got := a.do(order{Ask: "udp", Addr: "10.244.0.6:80"}).Text; !strings.HasPrefix(got, "10.244.0.5:") {
		t.Fatalf("the pod's own address is seen as %s", got)
	}
	others := []string{"10.244.0.7", "10.244.0.1", nodens.Gateway4.String(), "192.0.2.77"}
	for _, other := range others {
		a.do(order{Take: other + "/32", On: "eth0"})
		a.do(order{Spoof: other, Addr: "10.244.0.6:80"})
	}
	a.do(order{Spoof: "10.244.0.5", Addr: "10.244.0.6:80"})
	var heard string
	eventually(t, func() error {
		if heard = b.do(order{Heard: true}).Text; strings.Count(heard, "10.244.0.5:") < 2 {
			return fmt.Errorf("the other pod has heard from %s only", heard)
		}
		return nil
	})
	// The packet after the others has arrived, so that they would have too.
	for _, other := range others {
		if strings.Contains(heard, other+":") {
			t.Errorf("the other pod has heard from %s, as %s", heard, other)
		}
	}
}

func TestRootlessKnownSources(t *testing.T) { asUser(t, testKnownSources) }

// testKnownSources: also of a connection whose packets are looked at by few rules, what comes from another pod with
// the source's address goes nowhere, nor what comes from the source when it has the address no more.
func testKnownSources(t *testing.T) {
	n, a, b := twoPods(t, config(t))
	c := podIn(t, n, "c", plain(7))
	const port = 5000
	last := addresses(6)
	send := func(from *pod, family int) {
		from.do(order{Spoof: netip.AddrPortFrom(addresses(7)[family], port).String(),
			Addr: netip.AddrPortFrom(last[family], 80).String()})
	}
	// heard waits for a packet that a sends after the others.
	marks := 0
	heard := func(family int) int {
		t.Helper()
		marks++
		mark := netip.AddrPortFrom(addresses(5)[family], uint16(6000+marks)).String()
		a.do(order{Spoof: mark, Addr: netip.AddrPortFrom(last[family], 80).String()})
		var all string
		eventually(t, func() error {
			if all = b.do(order{Heard: true}).Text; !strings.Contains(all, mark+" ") {
				return fmt.Errorf("the other pod has heard from %s only", all)
			}
			return nil
		})
		return strings.Count(all, netip.AddrPortFrom(addresses(7)[family], port).String()+" ")
	}
	for family := range last {
		for range 3 {
			send(c, family)
		}
		if got := heard(family); got != 3 {
			t.Fatalf("of 3 packets of a pod %d came", got)
		}
		if got := knownSources(t, n, family); !slices.Contains(got, addresses(7)[family]) {
			t.Errorf("sources of connections are %v; want the pod's %s", got, addresses(7)[family])
		}
		a.do(order{Take: netip.PrefixFrom(addresses(7)[family], last[family].BitLen()).String(), On: "eth0"})
		send(a, family)
		send(c, family)
		if got := heard(family); got != 4 {
			t.Errorf("of 4 packets of a pod and one of another with its address and port, %d came", got)
		}
	}
	c.attach(n, "c", plain(8))
	for family := range last {
		c.do(order{Take: netip.PrefixFrom(addresses(7)[family], last[family].BitLen()).String(), On: "eth0"})
		send(c, family)
		if got := heard(family); got != 4 {
			t.Errorf("%d packets came from the address that the pod has no more", got-4)
		}
	}
}

// knownSources returns the addresses that have been found to be those of links.
func knownSources(t *testing.T, n *nodens.Namespace, family int) (all []netip.Addr) {
	t.Helper()
	conn, err := n.NFTables()
	check(t, err)
	set := &nftables.Set{Name: []string{"sources4", "sources6"}[family],
		Table: &nftables.Table{Name: "monoplane", Family: nftables.TableFamilyINet}}
	elements, err := conn.GetSetElements(set)
	check(t, err)
	for _, e := range elements {
		at, ok := netip.AddrFromSlice(e.Key[4:])
		if !ok {
			t.Fatalf("an element of %s: %x", set.Name, e.Key)
		}
		all = append(all, at)
	}
	return all
}

func TestRootlessPorts(t *testing.T) { asUser(t, testPorts) }

// fromLoopback is the address by which a pod sees clients of the machine's loopback of IPv4: the machine's, which the
// kernel leads, or the node's.
func fromLoopback(n *nodens.Namespace) string {
	node, machine := nodens.NodeAddresses(pods4)
	if n.Status().Egress == nodens.EgressMasquerade {
		return machine.String()
	}
	return node.String()
}

// testPorts: clients of the machine's ports come to the pod with the address that they have; those of the machine's
// loopback with the node's or the machine's.
func testPorts(t *testing.T) {
	n := open(t, config(t))
	at := netip.MustParseAddrPort("0.0.0.0:8080")
	servesAll(podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5), HostPorts: hostPorts(at)}))
	for _, network := range []string{"tcp", "udp"} {
		for client, seen := range map[string]string{outside: outside, lan: lan, "127.0.0.1": fromLoopback(n)} {
			for range 3 {
				got, err := askFrom(network, client, client+":8080")
				check(t, err)
				if from := clientIn(got); from != seen {
					t.Errorf("%s: the pod saw %s as %s; want %s", network, client, from, seen)
				}
			}
		}
	}
	if n.Status().Egress == nodens.EgressMasquerade {
		b := podIn(t, n, "b", plain(6))
		for _, network := range []string{"tcp", "udp"} {
			got := b.do(order{Ask: network, Addr: lan + ":8080"}).Text
			if from := clientIn(got); from != addresses(6)[0].String() {
				t.Errorf("%s: a pod was seen as %s; want its own address", network, from)
			}
		}
	}
	translate(t, n, "10.244.0.1", 7777, "10.244.0.5", 80)
	for _, network := range []string{"tcp", "udp"} {
		// As node ports lead there: through a Service's rules, which rewrite the destination.
		p, err := n.ServePort(t.Context(), nodens.PortConfig{Network: network,
			Listen:  netip.MustParseAddrPort("0.0.0.0:8081"),
			Targets: []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:7777")}})
		check(t, err)
		got, err := askFrom(network, lan, lan+":8081")
		check(t, err)
		if from := clientIn(got); from != lan {
			t.Errorf("%s by a Service: the pod saw %s as %s", network, lan, from)
		}
		check(t, p.Close())
	}
	// As addresses of load balancers lead there, which are the machine's own: without rules nobody is reached, at once.
	balanced := nodens.PortConfig{Network: "tcp", Listen: netip.MustParseAddrPort(lan + ":8082"),
		Targets: []netip.AddrPort{netip.MustParseAddrPort(lan + ":7778")}}
	p, err := n.ServePort(t.Context(), balanced)
	check(t, err)
	if got, err := askFrom("tcp", lan, lan+":8082"); err == nil && got != "" {
		t.Errorf("without rules %q has answered", got)
	}
	translate(t, n, lan, 7778, "10.244.0.5", 80)
	got, err := askFrom("tcp", lan, lan+":8082")
	check(t, err)
	if from := clientIn(got); from != lan {
		t.Errorf("by the address of a load balancer the pod saw %s as %s", lan, from)
	}
	check(t, p.Close())
	for _, network := range []string{"tcp", "udp"} {
		_, err := n.ServePort(t.Context(), nodens.PortConfig{Network: network, Listen: at})
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a port of %s that is taken is served: %v", network, err)
		}
	}
	check(t, n.Detach(t.Context(), "a"))
	if got, err := askFrom("tcp", lan, lan+":8080"); err == nil {
		t.Errorf("the port of a pod that is gone answers: %s", got)
	}
}

func TestRootlessPortsOfFamilies(t *testing.T) {
	asUser(t, func(t *testing.T) { testPortsOfFamilies(t, asPod) }, strangeClients)
}

// Clients that cannot be answered from inside.
const (
	linkLocal = "169.254.7.7"
	asService = "10.96.0.77"
	asPod     = "10.244.0.77"
)

// strangeClients gives the machine the addresses of such clients.
func strangeClients(t *testing.T) {
	lo := linkOf(t, "lo")
	for _, a := range []string{linkLocal, asService, asPod} {
		check(t, netlib.AddrAdd(lo, &netlib.Addr{IPNet: ipnet(a + "/32")}))
	}
}

// testPortsOfFamilies: a client reaches the pod by the family that it has come by, as itself. Who would have to come
// with the node's address instead, which policies always allow, is let in only if it is the machine itself. Strangers
// are further clients that are not let in.
func testPortsOfFamilies(t *testing.T, strangers ...string) {
	both := map[string]string{outside: outside, outside6: outside6, "::1": "fd00:244::1"}
	one := map[string]string{outside: outside, outside6: "", "::1": "10.244.0.1"}
	for name, c := range map[string]struct {
		seen     map[string]string
		families int
	}{"both": {both, 2}, "one": {one, 1}} {
		t.Run(name, func(t *testing.T) {
			cfg, pod := config(t), addresses(5)
			if len(pod) < c.families {
				t.Skip("this machine has no IPv6")
			}
			cfg.PodRanges, pod = cfg.PodRanges[:c.families], pod[:c.families]
			n := open(t, cfg)
			c.seen["127.0.0.1"] = fromLoopback(n)
			attach := onHost(5)
			attach.Addresses = pod
			servesAll(podIn(t, n, "a", attach))
			for client, want := range c.seen {
				for _, network := range []string{"tcp", "udp"} {
					got, err := askFrom(network, client, net.JoinHostPort(client, "8090"))
					if want == "" && !errors.Is(err, unix.ECONNREFUSED) {
						t.Errorf("%s from %s: %q, %v; want a refusal", network, client, got, err)
					}
					if want != "" && (err != nil || clientIn(got) != want) {
						t.Errorf("%s from %s: the pod saw %q, %v; want %s", network, client, got, err, want)
					}
				}
			}
			for _, client := range append(strangers, linkLocal, asService) {
				if got, err := askFrom("tcp", client, client+":8090"); err == nil {
					t.Errorf("from %s: %q", client, got)
				}
			}
		})
	}
}

// translate has the node namespace lead what it sends itself, and what comes to it, to another address and port.
func translate(t *testing.T, n *nodens.Namespace, from string, fromPort uint16, to string, toPort uint16) {
	t.Helper()
	conn, err := n.NFTables()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Name: "translate", Family: nftables.TableFamilyIPv4})
	for name, hook := range map[string]*nftables.ChainHook{
		"output": nftables.ChainHookOutput, "prerouting": nftables.ChainHookPrerouting,
	} {
		chain := conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook,
			Priority: nftables.ChainPriorityNATDest})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: net.ParseIP(from).To4()},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(fromPort)},
			&expr.Immediate{Register: 1, Data: net.ParseIP(to).To4()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(toPort)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
	}
	check(t, conn.Flush())
}

func askFrom(network, from, to string) (string, error) {
	ip := net.ParseIP(from)
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: ip}}
	if network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: ip}
	}
	c, err := d.Dial(network, to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return converse(c, 0)
}
