package nodens_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

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
	if onMachine(t, true) {
		testPods(t, nodens.EgressProcess)
	}
}

// testPods: pods reach each other, the world and the node; the node reaches them.
func testPods(t *testing.T, way nodens.Egress) {
	n := open(t, config(t))
	if got := n.Status(); got.Egress != way || got.MTU != mtu {
		t.Fatalf("the status is %+v; want egress %s, mtu %d", got, way, mtu)
	}
	a := podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5)})
	b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(6)})
	b.do(order{Serve: "tcp", Addr: ":80"})
	b.do(order{Serve: "udp", Addr: ":80"})
	if eth0 := a.do(order{Facts: true}).Links["eth0"]; eth0.MTU != mtu || eth0.Addresses[0] != "10.244.0.5/32" {
		t.Errorf("eth0 of the pod: %+v", eth0)
	}
	for i, to := range addresses(6) {
		for _, network := range []string{"tcp", "udp"} {
			got := a.do(order{Ask: network, Addr: netip.AddrPortFrom(to, 80).String(), Bytes: 1 << 20}).Text
			if from, _, _ := strings.Cut(got, " "); netip.MustParseAddrPort(from).Addr() != addresses(5)[i] {
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
	})
	t.Run("egress", func(t *testing.T) {
		for _, network := range []string{"tcp", "udp"} {
			at, err := serve(network, outside+":0")
			check(t, err)
			got := a.do(order{Ask: network, Addr: at, Bytes: 10 << 20}).Text
			from, said, _ := strings.Cut(got, " ")
			if network == "tcp" && said != fmt.Sprint(10<<20) {
				t.Errorf("the server outside received %s bytes", said)
			}
			if pods4.Contains(netip.MustParseAddrPort(from).Addr()) && way == nodens.EgressProcess {
				t.Errorf("the server outside saw the pod's address %s", from)
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

func TestRootlessNFTables(t *testing.T) {
	if onMachine(t, true) {
		testNFTables(t)
	}
}

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
	if !names["mine"] || !names["monoplane"] || len(names) != 2 {
		t.Errorf("the tables are %v", names)
	}
}

func TestRootlessSpoofing(t *testing.T) {
	if onMachine(t, true) {
		testSpoofing(t)
	}
}

// testSpoofing: what a pod sends with the address of another goes nowhere.
func testSpoofing(t *testing.T) {
	n := open(t, config(t))
	a := podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5)})
	b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(6)})
	b.do(order{Serve: "udp", Addr: ":80"})
	_ = podIn(t, n, "c", nodens.AttachConfig{Addresses: addresses(7)})
	if got := a.do(order{Ask: "udp", Addr: "10.244.0.6:80"}).Text; !strings.HasPrefix(got, "10.244.0.5:") {
		t.Fatalf("the pod's own address is seen as %s", got)
	}
	a.do(order{Take: "10.244.0.7/32", On: "eth0"})
	a.do(order{Spoof: "10.244.0.7", Addr: "10.244.0.6:80"})
	if got := a.do(order{Ask: "udp", Addr: "10.244.0.6:80"}).Text; !strings.HasPrefix(got, "10.244.0.5:") {
		t.Errorf("the pod's own address is seen as %s", got)
	}
	// The packet after it has arrived, so that it would have too.
	if heard := b.do(order{Heard: true}).Text; strings.Contains(heard, "10.244.0.7") {
		t.Errorf("the other pod has heard from %s", heard)
	}
}

func TestRootlessPorts(t *testing.T) {
	if onMachine(t, true) {
		testPorts(t)
	}
}

// testPorts: clients of the machine's ports come to the pod with the address that they have; those of the machine's
// loopback with the node's.
func testPorts(t *testing.T) {
	n := open(t, config(t))
	at := netip.MustParseAddrPort("0.0.0.0:8080")
	a := podIn(t, n, "a", nodens.AttachConfig{Addresses: addresses(5), HostPorts: []nodens.HostPort{
		{Network: "tcp", Host: at, Port: 80}, {Network: "udp", Host: at, Port: 80}}})
	a.do(order{Serve: "tcp", Addr: ":80"})
	a.do(order{Serve: "udp", Addr: ":80"})
	for _, network := range []string{"tcp", "udp"} {
		for client, seen := range map[string]string{outside: outside, lan: lan, "127.0.0.1": "10.244.0.1"} {
			for range 3 {
				got, err := askFrom(network, client, client+":8080")
				check(t, err)
				if from, _, _ := strings.Cut(got, " "); netip.MustParseAddrPort(from).Addr().String() != seen {
					t.Errorf("%s: the pod saw %s as %s; want %s", network, client, from, seen)
				}
			}
		}
	}
	if n.Status().Egress == nodens.EgressMasquerade {
		b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(6)})
		for _, network := range []string{"tcp", "udp"} {
			got := b.do(order{Ask: network, Addr: lan + ":8080"}).Text
			if from, _, _ := strings.Cut(got, " "); netip.MustParseAddrPort(from).Addr() != addresses(6)[0] {
				t.Errorf("%s: a pod was seen as %s; want its own address", network, from)
			}
		}
	}
	translate(t, n, "10.244.0.1", 7777, "10.244.0.5", 80)
	for _, network := range []string{"tcp", "udp"} {
		// As node ports lead there: through a Service's rules, which rewrite the destination.
		p, err := n.ServePort(t.Context(), nodens.PortConfig{Network: network,
			Listen: netip.MustParseAddrPort("0.0.0.0:8081"),
			Target: func(netip.AddrPort) (netip.AddrPort, error) { return netip.MustParseAddrPort("10.244.0.1:7777"), nil }})
		check(t, err)
		got, err := askFrom(network, lan, lan+":8081")
		check(t, err)
		if from, _, _ := strings.Cut(got, " "); netip.MustParseAddrPort(from).Addr().String() != lan {
			t.Errorf("%s by a Service: the pod saw %s as %s", network, lan, from)
		}
		check(t, p.Close())
	}
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

// translate has the node namespace lead what it sends itself to another address and port.
func translate(t *testing.T, n *nodens.Namespace, from string, fromPort uint16, to string, toPort uint16) {
	t.Helper()
	conn, err := n.NFTables()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Name: "translate", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: net.ParseIP(from).To4()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(fromPort)},
		&expr.Immediate{Register: 1, Data: net.ParseIP(to).To4()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(toPort)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
	}})
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
