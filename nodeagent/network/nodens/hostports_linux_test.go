package nodens_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"

	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens"
	rules "monoplane.dev/nodeagent/network/services"
)

// own are the addresses of the machine at which the kernel leads pods to host ports, of each family; outside is one at
// which it does not.
func own() (all []netip.Addr) {
	return []netip.Addr{netip.MustParseAddr(lan), netip.MustParseAddr(outside6)}[:len(addresses(5))]
}

// at are the host ports at the machine's own addresses.
func at(port uint16) (all []string) {
	for _, a := range own() {
		all = append(all, netip.AddrPortFrom(a, port).String())
	}
	return all
}

// beside is another process in the namespace of a pod.
func (p *pod) beside(n *nodens.Namespace) *pod {
	p.t.Helper()
	var user *os.File
	if n.Status().Rootless {
		var err error
		user, err = n.UserNamespace(p.t.Context())
		check(p.t, err)
		defer user.Close()
	}
	return enter(p.t, user, p.netns)
}

// reaches checks that a client reaches host ports by TCP and UDP, and is seen by addresses, one of each family.
func reaches(t *testing.T, when string, client *pod, ports []string, seen []netip.Addr) {
	t.Helper()
	for i, port := range ports {
		for _, network := range []string{"tcp", "udp"} {
			got := client.do(order{Ask: network, Addr: port, Bytes: 1 << 20}).Text
			if from := clientIn(got); from != seen[i].String() {
				t.Errorf("%s, %s to %s: the pod has seen %q; want %s", when, network, port, got, seen[i])
			}
		}
	}
}

// reachesNobody checks that nobody answers a client at host ports.
func reachesNobody(t *testing.T, when string, client *pod, ports ...string) {
	t.Helper()
	for _, port := range ports {
		if got := client.try(order{Ask: "tcp", Addr: port}); !strings.Contains(got.Err, "refused") {
			t.Errorf("%s, at %s: %+v; want a refusal", when, port, got)
		}
	}
}

func TestRootlessHostPortsOfPods(t *testing.T) { asUser(t, testHostPortsOfPods) }

// testHostPortsOfPods: connections and flows of pods to host ports of others, and to their own, go on while no server
// runs, and there are new ones; so it is while the next server has not said yet what is to be served. The pod sees
// others by their addresses, and itself by the node's. At addresses that are not the node's, the process leads there.
func testHostPortsOfPods(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	n.LeadPods(own())
	a := servesAll(podIn(t, n, "a", onHost(5)))
	b := podIn(t, n, "b", plain(6))
	node := []netip.Addr{nodens.Gateway4, netip.MustParseAddr("fd00:244::1")}
	itself := a.beside(n)
	tcp, udp := map[string]*pod{}, map[string]*pod{}
	for _, port := range at(8090) {
		tcp[port], udp[port] = b.beside(n), b.beside(n)
		tcp[port].do(order{Hold: 1, Addr: port})
		udp[port].do(order{Hold: 1, By: "udp", Addr: port})
	}
	itself.do(order{Hold: 1, Addr: lan + ":8090"})
	works := func(when string) {
		t.Helper()
		reaches(t, when, b, at(8090), addresses(6))
		reaches(t, when+", from the pod itself", a, at(8090), node)
		for i, port := range at(8090) {
			if got := clientIn(udp[port].do(order{Talk: true}).Text); got != addresses(6)[i].String() {
				t.Errorf("%s: a flow to %s comes from %s", when, port, got)
			}
		}
	}
	works("in the beginning")
	b.do(order{Ask: "tcp", Addr: outside + ":8090"})
	for range 2 {
		check(t, n.Close())
		works("without a server")
		reachesNobody(t, "without a server", b, outside+":8090")
		n = open(t, cfg)
		works("before it is known what is served")
		a.attach(n, "a", onHost(5))
		works("with the pods")
		n.LeadPods(own())
		works("with a new server")
		b.do(order{Ask: "tcp", Addr: outside + ":8090"})
	}
	for _, port := range at(8090) {
		tcp[port].do(order{Finish: true})
	}
	itself.do(order{Finish: true})
}

func TestRootlessHostPortsOfPodsEnd(t *testing.T) { asUser(t, testHostPortsOfPodsEnd) }

// testHostPortsOfPodsEnd: with a port, or where the machine has another address, connections of pods end, and what is
// on its way to them does not come to who has the port or the pod's address next as if it was theirs.
func testHostPortsOfPodsEnd(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	n.LeadPods(own())
	b := podIn(t, n, "b", plain(6))
	const port = lan + ":8090"
	tcp, udp := b.beside(n), b.beside(n)
	begin := func() {
		t.Helper()
		tcp.do(order{Hold: 1, Addr: port})
		udp.do(order{Hold: 1, By: "udp", Addr: port})
		udp.do(order{Talk: true})
	}
	ends := func(when string, next *pod) {
		t.Helper()
		if got := tcp.try(order{Finish: true}); !strings.Contains(got.Err, "reset") {
			t.Errorf("%s, a connection: %+v; want a reset", when, got)
		}
		if got := next.do(order{Heard: true}).Text; got != "" {
			t.Errorf("%s, the next pod has heard from %s", when, got)
		}
	}
	servesAll(podIn(t, n, "a", onHost(5)))
	begin()
	check(t, n.Detach(t.Context(), "a"))
	reachesNobody(t, "after the pod", b, at(8090)...)
	c := servesAll(podIn(t, n, "c", onHost(7)))
	ends("when another has the port", c)
	udp.do(order{Talk: true})
	if got := c.do(order{Heard: true}).Text; !strings.HasPrefix(got, "10.244.0.6:") {
		t.Errorf("the pod that has the port next has heard from %q", got)
	}
	reaches(t, "the next pod", b, at(8090), addresses(6))

	begin()
	n.LeadPods(own()[1:])
	check(t, n.Close())
	ends("where the machine has another address", podIn(t, open(t, cfg), "d", plain(8)))
}

func TestRootlessHostPortsOfPodsLapse(t *testing.T) { asUser(t, testHostPortsOfPodsLapse) }

// testHostPortsOfPodsLapse: what a server before has led ends with its sandbox, and what the kernel knows of it, also
// where that server was killed in the middle of it.
func testHostPortsOfPodsLapse(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	n.LeadPods(own())
	b := podIn(t, n, "b", plain(6))
	servesAll(podIn(t, n, "a", onHost(5)))
	check(t, n.Close())
	n = open(t, cfg)
	n.RetainPorts(func(sandbox string) bool { return sandbox == "a" })
	reaches(t, "of a pod that is there", b, at(8090), addresses(6))
	n.RetainPorts(func(string) bool { return false })
	reachesNobody(t, "of a pod that is not", b, at(8090)...)

	servesAll(podIn(t, n, "c", onHost(7)))
	udp := b.beside(n)
	udp.do(order{Hold: 1, By: "udp", Addr: lan + ":8090"})
	udp.do(order{Talk: true})
	conn, err := n.NFTables()
	check(t, err)
	check(t, n.Close())
	conn.FlushSet(&nftables.Set{Name: "ports4", Table: hostPortsTable()})
	check(t, conn.Flush())
	n = open(t, cfg)
	check(t, n.Detach(t.Context(), "c"))
	next := servesAll(podIn(t, n, "d", plain(7)))
	if got := udp.try(order{Talk: true}); got.Err == "" {
		t.Errorf("a flow to a pod that is gone is answered: %+v", got)
	}
	if got := next.do(order{Heard: true}).Text; got != "" {
		t.Errorf("the pod that has the address next has heard from %s", got)
	}

	podIn(t, n, "e", onHost(8))
	killAll(t)
	check(t, n.Detach(t.Context(), "e"))
}

func hostPortsTable() *nftables.Table {
	return &nftables.Table{Name: nodens.InsideTable, Family: nftables.TableFamilyINet}
}

func TestRootlessHostPortsOfPodsRepaired(t *testing.T) { asUser(t, testHostPortsOfPodsRepaired) }

// testHostPortsOfPodsRepaired: what others take away of the rules is put right.
func testHostPortsOfPodsRepaired(t *testing.T) {
	cfg := config(t)
	n := open(t, cfg)
	n.LeadPods(own())
	a := servesAll(podIn(t, n, "a", onHost(5)))
	b := podIn(t, n, "b", plain(6))
	table := hostPortsTable()
	for what, damage := range map[string]func(*nftables.Conn){
		"nothing":       func(*nftables.Conn) {},
		"all":           func(c *nftables.Conn) { c.FlushRuleset() },
		"the table":     func(c *nftables.Conn) { c.DelTable(table) },
		"the ports":     func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "ports4"}) },
		"the hairpins":  func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "hairpins4"}) },
		"the addresses": func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: table, Name: "own4"}) },
		"the rules":     func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Table: table, Name: "prerouting"}) },
	} {
		conn, err := n.NFTables()
		check(t, err)
		damage(conn)
		check(t, conn.Flush())
		check(t, n.Verify(t.Context()))
		check(t, n.Close())
		reaches(t, "without "+what, b, at(8090), addresses(6))
		a.do(order{Ask: "tcp", Addr: lan + ":8090"})
		n = open(t, cfg)
		a.attach(n, "a", onHost(5))
	}
	// A port that comes while the table is away.
	conn, err := n.NFTables()
	check(t, err)
	conn.FlushRuleset()
	check(t, conn.Flush())
	servesAll(podIn(t, n, "c", nodens.AttachConfig{Addresses: addresses(7),
		HostPorts: hostPorts(netip.MustParseAddrPort("[::]:8091"))}))
	check(t, n.Close())
	reaches(t, "a port that came", b, at(8091), addresses(6))
}

func TestRootlessHostPortsAtAddresses(t *testing.T) { asUser(t, testHostPortsAtAddresses) }

// testHostPortsAtAddresses: pods reach a host port at no other addresses than it has; one of the machine's loopback
// they do not reach.
func testHostPortsAtAddresses(t *testing.T) {
	n := open(t, config(t))
	n.LeadPods(own())
	b := podIn(t, n, "b", plain(6))
	for i, host := range []string{lan, outside, "127.0.0.1"} {
		servesAll(podIn(t, n, host, nodens.AttachConfig{Addresses: addresses(10 + i),
			HostPorts: hostPorts(netip.AddrPortFrom(netip.MustParseAddr(host), 8090+uint16(i)))}))
	}
	reaches(t, "at one address", b, []string{lan + ":8090"}, addresses(6))
	b.do(order{Ask: "tcp", Addr: outside + ":8091"}) // By the process.
	reachesNobody(t, "at others", b, outside+":8090", lan+":8091", lan+":8092", outside+":8092")
	if len(addresses(5)) > 1 {
		reachesNobody(t, "of another family", b, at(8090)[1])
	}
	// Somebody else has the same port at another address.
	servesAll(podIn(t, n, "other", nodens.AttachConfig{Addresses: addresses(20),
		HostPorts: hostPorts(netip.AddrPortFrom(netip.MustParseAddr(outside), 8090))}))
	reaches(t, "beside another", b, []string{lan + ":8090"}, addresses(6))
	check(t, n.Detach(t.Context(), lan))
	reachesNobody(t, "when it has ended", b, lan+":8090")
}

func TestRootlessHostPortsOfOneFamily(t *testing.T) { asUser(t, testHostPortsOfOneFamily) }

// testHostPortsOfOneFamily: where pods have no addresses of IPv6, those of the machine do not matter.
func testHostPortsOfOneFamily(t *testing.T) {
	config(t) // For its directory.
	n := open(t, config4())
	n.LeadPods([]netip.Addr{netip.MustParseAddr(outside6), netip.MustParseAddr(lan)})
	attach := onHost(5)
	attach.Addresses = attach.Addresses[:1]
	a := servesAll(podIn(t, n, "a", attach))
	b := podIn(t, n, "b", nodens.AttachConfig{Addresses: addresses(6)[:1]})
	check(t, n.Close())
	reaches(t, "from another", b, at(8090)[:1], addresses(6))
	reaches(t, "from itself", a, at(8090)[:1], []netip.Addr{nodens.Gateway4})
}

func TestRootlessHostPortsBesideServices(t *testing.T) { asUser(t, testHostPortsBesideServices) }

// testHostPortsBesideServices: a Service that has the number of a host port goes before it while it is there. Ports,
// however many a pod has, come and go in one transaction each.
func testHostPortsBesideServices(t *testing.T) {
	n := open(t, config(t))
	n.LeadPods(own())
	b := podIn(t, n, "b", plain(6))
	udp := b.beside(n)
	const port = lan + ":8090"
	generation := func() uint32 {
		g, err := nft.Generation(n.Netfilter)
		check(t, err)
		return g
	}
	many := onHost(5)
	for i := range uint16(50) {
		many.HostPorts = append(many.HostPorts, hostPorts(netip.AddrPortFrom(netip.IPv6Unspecified(), 9000+i))...)
	}
	a := newPod(t, n)
	before := generation()
	a.attach(n, "a", many)
	if got := generation() - before; got != 1 {
		t.Errorf("a pod with %d host ports is %d transactions", len(many.HostPorts), got)
	}
	servesAll(a)
	served := servesAll(podIn(t, n, "c", plain(7)))
	udp.do(order{Hold: 1, By: "udp", Addr: port})
	heard := func(when string, by *pod) {
		t.Helper()
		had := by.do(order{Heard: true}).Text
		reaches(t, when, b, []string{port}, addresses(6))
		udp.do(order{Talk: true})
		if now := by.do(order{Heard: true}).Text; strings.Count(now, ":") != strings.Count(had, ":")+2 {
			t.Errorf("%s, the pod has heard from %s", when, strings.TrimPrefix(now, had))
		}
	}
	heard("in the beginning", a)
	service := &rules.Rules{UID: "s"}
	for _, network := range []string{"tcp", "udp"} {
		chain := rules.Chain{Name: fmt.Sprintf("service/%s/x", network), Backends: []netip.AddrPort{
			netip.AddrPortFrom(addresses(7)[0], 80)}}
		service.Chains = append(service.Chains, chain)
		service.Claims = append(service.Claims, rules.Claim{Chain: chain.Name, Allocated: true,
			Entry: rules.Entry{Protocol: network, Addr: own()[0], Port: 8090}})
	}
	applier, err := rules.NewApplier(rules.Config{NFTables: n.NFTables, Netfilter: n.Netfilter})
	check(t, err)
	key := cache.Key{Namespace: "ns", Name: "s"}
	check(t, applier.Apply(t.Context(), []rules.Change{{Service: key, Rules: service}}))
	heard("with a Service", served)
	check(t, applier.Apply(t.Context(), []rules.Change{{Service: key}}))
	heard("without the Service", a)
	before = generation()
	check(t, n.Detach(t.Context(), "a"))
	if got := generation() - before; got != 1 {
		t.Errorf("the end of a pod with %d host ports is %d transactions", len(many.HostPorts), got)
	}
}
