package policies_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/policies"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

const (
	nodeIP  = "10.9.0.1"
	nodeIP6 = "fd00:9::1"
)

// ground is a node namespace with a namespace for each pod of everybody, and one for all who are elsewhere.
type ground struct {
	t       testing.TB
	node    *netnstest.NS
	all     []*subject
	at      map[*subject]*netnstest.NS
	world   *policies.World
	applier *policies.Applier
}

func newGround(t testing.TB) *ground {
	g := &ground{
		t: t, node: netnstest.New(t), all: everybody(), at: map[*subject]*netnstest.NS{}, world: policies.NewWorld(),
	}
	g.node.Up("lo", nodeIP+"/32", nodeIP6+"/128")
	g.node.Forwards()
	var elsewhere []string
	for i, s := range g.all {
		if !s.here {
			elsewhere = append(elsewhere, s.addrs[0].String()+"/32", s.addrs[1].String()+"/128")
			continue
		}
		g.at[s] = g.link(fmt.Sprint("pod", i), []string{s.addrs[0].String() + "/32", s.addrs[1].String() + "/128"})
	}
	outside := g.link("uplink", elsewhere)
	for _, s := range g.all {
		if !s.here {
			g.at[s] = outside
		}
	}
	g.world.SetNode([]netip.Addr{netip.MustParseAddr(nodeIP), netip.MustParseAddr(nodeIP6)})
	g.applier = g.restarted()
	for _, s := range g.all {
		for _, a := range s.addrs {
			for _, port := range testPorts {
				g.at[s].Serve(netip.AddrPortFrom(a, port).String(), func(_, said string) string { return said })
			}
		}
	}
	return g
}

// link makes a namespace with addresses, to which the node routes.
func (g *ground) link(name string, addrs []string) *netnstest.NS {
	ns := netnstest.New(g.t)
	netnstest.Link(g.node, ns, name, "eth0", []string{"169.254.1.1/32", "fd00:ffff::1/128"}, addrs)
	for _, a := range addrs {
		g.node.Route(name, a, "", "")
	}
	ns.Route("eth0", "0.0.0.0/0", "169.254.1.1", "")
	ns.Route("eth0", "fd00::/16", "fd00:ffff::1", "")
	return ns
}

func (g *ground) restarted() *policies.Applier {
	g.t.Helper()
	a, err := policies.NewApplier(policies.Config{NFTables: g.node.NFTables, Netfilter: g.node.Netfilter})
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

func (g *ground) apply() {
	g.t.Helper()
	if err := g.applier.Apply(context.Background(), g.world); err != nil {
		g.t.Fatal(err)
	}
}

// refusals are what a client learns of what is refused, by reset and by ICMP of both families.
var refusals = []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EACCES, syscall.EPERM}

// speak has a connection answer. What UDP has lost is said again.
func speak(c net.Conn) error {
	question := fmt.Sprintln(rand.Uint64())
	times, wait := 1, 30*time.Second
	if c.LocalAddr().Network() == "udp" {
		times, wait = 30, time.Second
	}
	var answer string
	err := os.ErrDeadlineExceeded
	for ; times > 0 && errors.Is(err, os.ErrDeadlineExceeded); times-- {
		_ = c.SetDeadline(time.Now().Add(wait))
		if _, err := fmt.Fprint(c, question); err != nil {
			return err
		}
		answer, err = bufio.NewReader(c).ReadString('\n')
	}
	if err == nil && answer != question {
		err = fmt.Errorf("asked %q, the answer is %q", question, answer)
	}
	return err
}

// through tells whether a connection comes about.
func (g *ground) through(ns *netnstest.NS, from netip.Addr, protocol string, to netip.AddrPort) bool {
	g.t.Helper()
	c, err := ns.Dial(protocol, from.String(), to.String())
	if err == nil {
		defer func() { _ = c.Close() }()
		err = speak(c)
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return false
		}
	}
	if err != nil {
		g.t.Fatalf("%s from %s to %s: %v", protocol, from, to, err)
	}
	return true
}

// forget has the kernel forget all connections, so that no port that is used again continues one.
func (g *ground) forget() {
	g.t.Helper()
	g.node.Do(func() error { return vnetlink.ConntrackTableFlush(vnetlink.ConntrackTable) })
}

// damage does to the table what somebody could, or nothing.
func damage(conn *nftables.Conn, r *rand.Rand) error {
	table := &nftables.Table{Name: policies.TableName, Family: nftables.TableFamilyINet}
	chains, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil || len(chains) == 0 {
		return err
	}
	chain := chains[r.IntN(len(chains))]
	switch r.IntN(4) {
	case 0:
		conn.DelTable(table)
	case 1:
		conn.FlushChain(&nftables.Chain{Table: table, Name: chain.Name})
	case 2:
		conn.InsertRule(&nftables.Rule{
			Table: table, Chain: &nftables.Chain{Name: chain.Name}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}},
		})
	case 3:
		conn.FlushSet(&nftables.Set{Table: table, Name: pick(r, "egress4", "ingress6", "node4")})
	}
	return nil
}

// Random histories in the kernel: packets go through as the reference says, and the table has what it should and
// nothing else, whatever others did to it and although the process was restarted.
func TestPacketsAreAsTheReference(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	g, c := newGround(t), newCluster()
	refused, through := 0, 0
	for round := range 40 {
		for range 1 + r.IntN(6) {
			c.change(r, g.all, g.world)
		}
		switch r.IntN(6) {
		case 0:
			g.applier, g.world = g.restarted(), c.anew()
			g.world.SetNode([]netip.Addr{netip.MustParseAddr(nodeIP), netip.MustParseAddr(nodeIP6)})
		case 1:
			g.node.Rules(func(conn *nftables.Conn) error { return damage(conn, r) })
		}
		g.apply()
		if err := g.applier.Verify(t.Context(), g.world); err != nil {
			t.Fatal(err)
		}
		if d, err := g.applier.Differences(g.world); err != nil || d != "" {
			t.Fatalf("seed %d, round %d: %v %s", seed, round, err, d)
		}
		g.forget()
		for range 60 {
			src, dst, i := pick(r, g.all...), pick(r, g.all...), r.IntN(2)
			if g.at[src] == g.at[dst] {
				continue // that is no matter of the node
			}
			protocol, port := pick(r, "tcp", "udp"), pick(r, testPorts...)
			to := netip.AddrPortFrom(dst.addrs[i], port)
			want := c.allows(src, dst, i == 1, protocol, port)
			if got := g.through(g.at[src], src.addrs[i], protocol, to); got != want {
				t.Fatalf("seed %d, round %d: %v to %v, %s %d: let through %v, should be %v\n%v\n%v", seed, round, src, dst,
					protocol, port, got, want, c.policies, c.namespaces)
			}
			if want {
				through++
			} else {
				refused++
			}
		}
		// The node reaches its pods, and they it, always.
		for i, a := range []string{nodeIP, nodeIP6} {
			s := g.all[r.IntN(4)]
			if !g.through(g.node, netip.MustParseAddr(a), "tcp", netip.AddrPortFrom(s.addrs[i], 8080)) {
				t.Fatalf("seed %d, round %d: the node does not reach %v", seed, round, s)
			}
			c, err := g.at[s].Dial("tcp", s.addrs[i].String(), net.JoinHostPort(a, "1"))
			if !errors.Is(err, syscall.ECONNREFUSED) { // by nobody who listens
				t.Fatalf("seed %d, round %d: %v to the node: %v %v", seed, round, s, c, err)
			}
		}
	}
	t.Logf("%d refused, %d let through", refused, through)
	if refused == 0 || through == 0 {
		t.Errorf("seed %d: %d refused, %d let through: the test says little", seed, refused, through)
	}
}

// deny isolates all pods of a namespace in both directions.
func deny() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{Spec: &networkingv1.NetworkPolicySpec{PolicyTypes: []string{"Ingress", "Egress"}}}
}

// Connections that are established go on when a policy comes that would not let them through; new ones are refused.
func TestEstablishedConnectionsGoOn(t *testing.T) {
	g := newGround(t)
	src, dst := g.all[0], g.all[1]
	src.namespace, dst.namespace = "a", "a"
	src.tell(g.world)
	dst.tell(g.world)
	// Connections are tracked while there is a table that asks for it; on a node that of Services is always there.
	other := g.all[2]
	other.namespace = "other"
	other.tell(g.world)
	g.world.SetPolicy(cache.Key{Namespace: "other", Name: "deny"}, deny())
	g.apply()
	for i := range 2 {
		to := netip.AddrPortFrom(dst.addrs[i], 8080)
		var open []net.Conn
		for _, protocol := range []string{"tcp", "udp"} {
			c, err := g.at[src].Dial(protocol, src.addrs[i].String(), to.String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := speak(c); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		g.world.SetPolicy(cache.Key{Namespace: "a", Name: "deny"}, deny())
		g.apply()
		for _, protocol := range []string{"tcp", "udp"} {
			if g.through(g.at[src], src.addrs[i], protocol, to) {
				t.Errorf("%s to %s is let through", protocol, to)
			}
		}
		for _, c := range open {
			if err := speak(c); err != nil {
				t.Errorf("%s to %s: %v", c.RemoteAddr().Network(), to, err)
			}
		}
		g.world.SetPolicy(cache.Key{Namespace: "a", Name: "deny"}, nil)
		g.apply()
	}
}

// While no pod is isolated there is no table; the first brings it, the last takes it along.
func TestNoTableWithoutNeed(t *testing.T) {
	g := newGround(t)
	tables := func() (n int) {
		g.node.Rules(func(conn *nftables.Conn) error {
			all, err := conn.ListTables()
			n = len(all)
			return err
		})
		return n
	}
	key := cache.Key{Namespace: "a", Name: "deny"}
	g.world.SetPolicy(key, deny())
	g.all[4].namespace = "a" // elsewhere
	g.all[4].tell(g.world)
	g.apply()
	if n := tables(); n != 0 {
		t.Errorf("%d tables for a pod on another node", n)
	}
	s := g.all[0]
	s.namespace = "a"
	s.tell(g.world)
	g.apply()
	if n := tables(); n != 1 {
		t.Errorf("%d tables for an isolated pod", n)
	}
	g.world.SetPod("a", s.name, nil)
	g.apply()
	if n := tables(); n != 0 {
		t.Errorf("%d tables when the pod is gone", n)
	}
}

// ICMP is refused and let through as policies say, and what belongs to a connection that is let through comes back.
func TestPing(t *testing.T) {
	g := newGround(t)
	src, dst := g.all[0], g.all[1]
	src.namespace, dst.namespace = "a", "b"
	src.tell(g.world)
	dst.tell(g.world)
	for _, v := range []struct {
		allow bool
		spec  *networkingv1.NetworkPolicySpec
	}{
		{false, &networkingv1.NetworkPolicySpec{}},
		{true, &networkingv1.NetworkPolicySpec{Ingress: []*networkingv1.NetworkPolicyIngressRule{{}}}},
		{false, &networkingv1.NetworkPolicySpec{
			Ingress: []*networkingv1.NetworkPolicyIngressRule{{Ports: []*networkingv1.NetworkPolicyPort{{}}}},
		}},
	} {
		g.world.SetPolicy(cache.Key{Namespace: "b", Name: "p"}, &networkingv1.NetworkPolicy{Spec: v.spec})
		g.apply()
		g.forget()
		if got := g.ping(src, dst); got != v.allow {
			t.Errorf("%v: ping is let through: %v", v.spec, got)
		}
	}
}

// ping sends an echo request and tells whether it is answered; it is told when it is refused.
func (g *ground) ping(src, dst *subject) (answered bool) {
	g.t.Helper()
	g.at[src].Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		tv := unix.NsecToTimeval((10 * time.Second).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return err
		}
		echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} // with its checksum
		if err := unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: dst.addrs[0].As4()}); err != nil {
			return err
		}
		buf := make([]byte, 256)
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || n < 21 {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		switch buf[20] {
		case 0:
			answered = true
		case 3:
		default:
			return fmt.Errorf("ICMP of type %d", buf[20])
		}
		return nil
	})
	return answered
}

// Associations of SCTP are let through by rules for their port, and not by those for other protocols or ports.
func TestSCTP(t *testing.T) {
	g := newGround(t)
	src, dst := g.all[0], g.all[1]
	src.namespace, dst.namespace = "a", "a"
	src.tell(g.world)
	dst.ports = []policies.NamedPort{{Name: "diameter", Protocol: "sctp", Number: 3868}}
	dst.tell(g.world)
	sctp, last := "SCTP", int32(3870)
	number, name := &metav1.IntOrString{IntVal: 3868}, &metav1.IntOrString{Type: 1, StrVal: "diameter"}
	key, from := cache.Key{Namespace: "a", Name: "p"}, uint16(40000)
	for _, p := range []struct {
		port    *networkingv1.NetworkPolicyPort
		through bool
	}{
		{&networkingv1.NetworkPolicyPort{Protocol: &sctp, Port: number}, true},
		{&networkingv1.NetworkPolicyPort{Protocol: &sctp, Port: &metav1.IntOrString{IntVal: 3867}, EndPort: &last}, true},
		{&networkingv1.NetworkPolicyPort{Protocol: &sctp, Port: name}, true},
		{&networkingv1.NetworkPolicyPort{Protocol: &sctp}, true},
		{&networkingv1.NetworkPolicyPort{Protocol: &sctp, Port: &metav1.IntOrString{IntVal: 3869}}, false},
		{&networkingv1.NetworkPolicyPort{Port: number}, false},
	} {
		for v := range 2 {
			g.world.SetPolicy(key, &networkingv1.NetworkPolicy{Spec: &networkingv1.NetworkPolicySpec{
				Ingress: []*networkingv1.NetworkPolicyIngressRule{{Ports: []*networkingv1.NetworkPolicyPort{p.port}}},
			}})
			g.apply()
			pod, client := g.at[dst].SCTP(dst.addrs[v], time.Minute), g.at[src].SCTP(src.addrs[v], time.Minute)
			from++
			client.Begin(from, netip.AddrPortFrom(dst.addrs[v], 3868))
			// What comes after it, and is forbidden by nobody, shows that it would have come.
			g.world.SetPolicy(key, nil)
			g.apply()
			client.Begin(from, netip.AddrPortFrom(dst.addrs[v], 1))
			who, at, err := pod.Begun()
			if err != nil || who != src.addrs[v] || (at == 3868) != p.through {
				t.Errorf("%v: the pod hears from %s, at port %d, %v; to be let through: %v", p.port, who, at, err, p.through)
			}
		}
	}
}

// The kernel takes a policy with many peers and ports, and a set with many elements: in one transaction, or in some
// where its socket cannot hold as much.
func TestMuch(t *testing.T) {
	g := newGround(t)
	dst := g.all[1]
	dst.namespace = "a"
	dst.tell(g.world)
	for i := range 5000 {
		g.world.SetPod("many", fmt.Sprint(i), &policies.Pod{
			Labels: map[string]string{"n": fmt.Sprint(i % 7)},
			Addrs:  []netip.Addr{addr(fmt.Sprintf("10.7.%d.%%d", i/250), i%250)},
		})
	}
	g.world.SetNamespace("many", map[string]string{"name": "many"}, true)
	p := deny()
	p.Metadata = nil
	rule := &networkingv1.NetworkPolicyIngressRule{From: []*networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: matchLabel("name", "many"),
	}}}
	for i := range 200 {
		rule.From = append(rule.From, &networkingv1.NetworkPolicyPeer{
			IpBlock: &networkingv1.IPBlock{Cidr: fmt.Sprintf("172.16.%d.0/24", i)},
		})
	}
	p.Spec.Ingress = append(p.Spec.Ingress, rule)
	g.world.SetPolicy(cache.Key{Namespace: "a", Name: strings.Repeat("long", 60)}, p)
	before := g.node.Generation()
	g.apply()
	if got := g.node.Generation() - before; got != 1 {
		t.Errorf("a table that is new is %d transactions", got)
	}
	if d, err := g.applier.Differences(g.world); err != nil || d != "" {
		t.Fatalf("%v %s", err, d)
	}

	g.node.Rules(func(conn *nftables.Conn) error {
		conn.DelTable(&nftables.Table{Name: policies.TableName, Family: nftables.TableFamilyINet})
		return nil
	})
	g.applier = g.restarted()
	g.applier.SetMostBytes(32 << 10)
	before = g.node.Generation()
	g.apply()
	if got := g.node.Generation() - before; got < 3 {
		t.Errorf("by small transactions it is %d", got)
	}
	if d, err := g.applier.Differences(g.world); err != nil || d != "" {
		t.Fatalf("%v %s", err, d)
	}
}
