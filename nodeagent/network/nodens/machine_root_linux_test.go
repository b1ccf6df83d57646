//go:build rootonly

package nodens_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens"
)

// neighbour is another machine on the LAN.
const neighbour = "192.0.2.1"

// world puts the neighbour into a network namespace of its own, and returns a process of it, which serves at port 80.
func world(t *testing.T) *pod {
	t.Helper()
	made := make(chan *os.File, 1)
	go func() {
		runtime.LockOSThread() // The thread ends with the goroutine.
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			close(made)
			return
		}
		f, _ := os.Open("/proc/thread-self/ns/net")
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			_ = netlink.LinkSetUp(lo)
		}
		made <- f
	}()
	netns, ok := <-made
	if !ok {
		t.Fatal("no network namespace can be made")
	}
	t.Cleanup(func() { netns.Close() })
	far := linkOf(t, "lan1")
	check(t, netlink.LinkSetNsFd(far, int(netns.Fd())))
	p := enter(t, nil, netns)
	p.do(order{Take: neighbour + "/24", On: "lan1"})
	return servesAll(p)
}

// filter has somebody else make a table of the machine, with a chain and at most one rule, until undo is called.
func filter(t *testing.T, table *nftables.Table, chain *nftables.Chain, rule ...expr.Any) (undo func()) {
	t.Helper()
	chain.Table, chain.Type, chain.Priority = table, nftables.ChainTypeFilter, nftables.ChainPriorityFilter
	changeRules(t, func(c *nftables.Conn) {
		c.AddTable(table)
		c.AddChain(chain)
		if len(rule) > 0 {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
		}
	})
	return func() {
		t.Helper()
		changeRules(t, func(c *nftables.Conn) { c.DelTable(table) })
	}
}

// changeRules does something to the machine's nftables.
func changeRules(t *testing.T, change func(*nftables.Conn)) {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	change(conn)
	check(t, conn.Flush())
}

// policyDrops has the machine forward nothing, until undo is called.
func policyDrops(t *testing.T) (undo func()) {
	t.Helper()
	drop := nftables.ChainPolicyDrop
	return filter(t, &nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4},
		&nftables.Chain{Name: "FORWARD", Hooknum: nftables.ChainHookForward, Policy: &drop})
}

// What pods send to other machines has the machine's address where the kernel sends it, and where the process does:
// because the machine does not forward, or somebody's rules drop what is forwarded. Those are left as they are.
//
// spec: NET-1
func TestRootEgress(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	try := func(t *testing.T, way nodens.Egress, why string) {
		t.Helper()
		n := open(t, config(t))
		if got := n.Status(); got.Egress != way || !strings.Contains(got.Why, why) {
			t.Errorf("the status is %+v; want %s because of %q", got, way, why)
		}
		a := podIn(t, n, "a", plain(5))
		for _, network := range []string{"tcp", "udp"} {
			got := a.do(order{Ask: network, Addr: neighbour + ":80", Bytes: 1 << 20}).Text
			if from := clientIn(got); from != lan {
				t.Errorf("%s: the neighbour saw %s; want %s", network, from, lan)
			}
		}
		got := a.try(order{Ask: "tcp", Addr: neighbour + ":81"})
		if !strings.Contains(got.Err, "connect: connection refused") {
			t.Errorf("a port where nobody listens answered %+v", got)
		}
	}
	t.Run("masquerade", func(t *testing.T) { try(t, nodens.EgressMasquerade, "") })
	t.Run("does not forward", func(t *testing.T) {
		setting := "/proc/sys/net/ipv4/conf/lan0/forwarding"
		check(t, os.WriteFile(setting, []byte("0"), 0))
		try(t, nodens.EgressProcess, "net.ipv4.conf.lan0.forwarding is 0")
		if now, err := os.ReadFile(setting); err != nil || string(now) != "0\n" {
			t.Errorf("the machine's setting is now %q, %v", now, err)
		}
		check(t, os.WriteFile(setting, []byte("1"), 0))
	})
	t.Run("policy drops", func(t *testing.T) {
		undo := policyDrops(t)
		try(t, nodens.EgressProcess, "FORWARD of the machine's table filter drops")
		undo()
	})
	t.Run("last rule rejects", func(t *testing.T) {
		undo := filter(t, &nftables.Table{Name: "firewalld", Family: nftables.TableFamilyINet},
			&nftables.Chain{Name: "filter_FORWARD", Hooknum: nftables.ChainHookForward},
			&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
		try(t, nodens.EgressProcess, "filter_FORWARD of the machine's table firewalld drops")
		undo()
	})
}

// TestRootTableIsFlushed: whoever takes all rules of the machine away, as a restart of nftables does, cuts pods off no
// longer than until the next look, which changes nothing where all is right.
func TestRootTableIsFlushed(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	changeRules(t, func(c *nftables.Conn) { c.FlushRuleset() })
	testVerifyFails(t, n)
	testVerified(t, n, a)
	testTableInsideIsFlushed(t, n, a, neighbour+":80")
}

// testVerified: what is missing is put right, and then nothing is changed any more.
func testVerified(t *testing.T, n *nodens.Namespace, a *pod) {
	t.Helper()
	check(t, n.Verify(t.Context()))
	got := a.do(order{Ask: "tcp", Addr: neighbour + ":80", Bytes: 1 << 20}).Text
	if from := clientIn(got); from != lan {
		t.Errorf("the neighbour saw %s; want %s", from, lan)
	}
	generation := func() uint32 {
		now, err := nft.Generation(func() (*mdlayher.Conn, error) { return mdlayher.Dial(unix.NETLINK_NETFILTER, nil) })
		check(t, err)
		return now
	}
	before := generation()
	check(t, n.Verify(t.Context()))
	if after := generation(); after != before {
		t.Errorf("rules were changed where all was right: generation %d became %d", before, after)
	}
}

// TestRootRoutesAreDeleted: managers of networks take away what they do not know.
func TestRootRoutesAreDeleted(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	n := open(t, config(t))
	a := servesAll(podIn(t, n, "a", plain(5)))
	uplink := func() netlink.Link {
		links, err := netlink.LinkList()
		check(t, err)
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "mp") {
				return l
			}
		}
		t.Fatal("there is no link to the node namespace")
		return nil
	}
	for what, damage := range map[string]func() error{
		"nothing": func() error { return nil },
		"the route to pods": func() error {
			return netlink.RouteDel(&netlink.Route{LinkIndex: uplink().Attrs().Index, Dst: ipnet(pods4.String())})
		},
		"the address": func() error {
			return netlink.AddrDel(uplink(), &netlink.Addr{IPNet: ipnet("10.244.0.2/32")})
		},
		"the link is down": func() error { return netlink.LinkSetDown(uplink()) },
		"the link":         func() error { return netlink.LinkDel(uplink()) },
	} {
		t.Run(what, func(t *testing.T) {
			check(t, damage())
			testVerified(t, n, a)
			for _, to := range addresses(5) {
				if _, err := ask("tcp", netip.AddrPortFrom(to, 80).String(), 1000); err != nil {
					t.Errorf("the machine does not reach the pod: %v", err)
				}
			}
		})
	}
}

// TestRootTwoClusters: of two clusters with the same addresses of Services the machine reaches those of the one that
// was there first, and the other's once that is gone.
func TestRootTwoClusters(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	first := config(t)
	other := neighbourOf(t, "other", "10.245.0.0/24")
	n := open(t, other)
	if !n.Status().Services {
		t.Error("the machine does not reach the Services of the only cluster")
	}
	second, err := nodens.Open(t.Context(), first)
	check(t, err)
	if second.Status().Services || !n.Status().Services {
		t.Errorf("the machine reaches Services of the first cluster: %v, of the second: %v", n.Status().Services,
			second.Status().Services)
	}
	check(t, n.Close())
	check(t, nodens.Remove(t.Context(), other))
	check(t, second.Verify(t.Context()))
	if !second.Status().Services {
		t.Error("the machine does not reach the Services of the cluster that is left")
	}
	check(t, second.Close())
	check(t, nodens.Remove(t.Context(), first))
}

// neighbourOf is a cluster beside the test's, with other addresses of pods.
func neighbourOf(t *testing.T, name, pods string) nodens.Config {
	t.Helper()
	cfg := nodens.Config{Cluster: name, Dir: filepath.Join(os.Getenv("NODENS_DIR"), name),
		PodRanges: []netip.Prefix{netip.MustParsePrefix(pods)}, ServiceRanges: []netip.Prefix{services}}
	check(t, os.Mkdir(cfg.Dir, 0o700))
	return cfg
}

// TestRootNeighbourIsKilled: of a cluster that was killed with its helpers, and whose directory is gone, nothing keeps
// another one from having its addresses and ports. A cluster that lives keeps all.
func TestRootNeighbourIsKilled(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	dead := neighbourOf(t, "dead", pods4.String())
	dead.PodRanges = config(t).PodRanges
	n, err := nodens.Open(t.Context(), dead)
	check(t, err)
	podIn(t, n, "a", onHost(5))
	helpersOfDead := bothHelpers(t, 0)

	living := neighbourOf(t, "living", "10.245.0.0/24")
	beside, err := nodens.Open(t.Context(), living)
	check(t, err)
	podIn(t, beside, "c", nodens.AttachConfig{Addresses: []netip.Addr{netip.MustParseAddr("10.245.0.5")},
		HostPorts: []nodens.HostPort{{Network: "tcp", Host: netip.MustParseAddrPort("[::]:8091"), Port: 80}}})
	rules := numbersOfRules(t, nodens.HostTable(living.Cluster))

	killEach(t, helpersOfDead)
	check(t, n.Close()) // What is left is the same as when this process had been killed, but for its sockets.
	check(t, os.RemoveAll(dead.Dir))
	eventually(t, func() error {
		if _, err := netlink.LinkByName(nodens.HostLink(dead.Cluster)); err == nil {
			return errors.New("the link of the dead cluster is there")
		}
		return nil
	})
	if len(numbersOfRules(t, nodens.HostTable(dead.Cluster))) == 0 {
		t.Error("the test is of no use: the table of the dead cluster is gone by itself")
	}
	cfg := config(t)
	n, err = nodens.Open(t.Context(), cfg)
	check(t, err)
	gone := func() {
		t.Helper()
		if left := numbersOfRules(t, nodens.HostTable(dead.Cluster)); len(left) > 0 {
			t.Errorf("the dead cluster has %d rules left", len(left))
		}
		if now := numbersOfRules(t, nodens.HostTable(living.Cluster)); !slices.Equal(now, rules) {
			t.Errorf("the rules of the living cluster were %v, and are %v", rules, now)
		}
	}
	gone()
	servesAll(podIn(t, n, "b", onHost(6)))
	for _, at := range []string{"10.244.0.6:80", "127.0.0.1:8090"} {
		if _, err := ask("tcp", at, 1000); err != nil {
			t.Errorf("the machine asks a pod at %s: %v", at, err)
		}
	}
	// One that ends while others run, as a helper does whose directory is removed.
	changeRules(t, func(c *nftables.Conn) {
		c.AddTable(&nftables.Table{Name: nodens.HostTable(dead.Cluster), Family: nftables.TableFamilyINet})
	})
	check(t, beside.Verify(t.Context()))
	conn, err := nftables.New()
	check(t, err)
	if left, err := conn.ListTableOfFamily(nodens.HostTable(dead.Cluster), nftables.TableFamilyINet); err == nil {
		t.Errorf("the table %v is left", left)
	}
	gone()
	check(t, errors.Join(beside.Close(), nodens.Remove(t.Context(), living), n.Close(), nodens.Remove(t.Context(), cfg)))
	nothingLeft(t)
}

// numbersOfRules are the kernel's numbers of the rules of a table of the machine.
func numbersOfRules(t *testing.T, table string) (all []uint64) {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	chains, err := conn.ListChains()
	check(t, err)
	for _, c := range chains {
		if c.Table.Name != table {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		check(t, err)
		for _, r := range rules {
			all = append(all, r.Handle)
		}
	}
	return all
}

// testGoesOut checks which way pods go out and why, and that one reaches addresses elsewhere.
func testGoesOut(t *testing.T, n *nodens.Namespace, a *pod, way nodens.Egress, why string, elsewhere ...string) {
	t.Helper()
	if got := n.Status(); got.Egress != way || !strings.Contains(got.Why, why) {
		t.Errorf("the status is %+v; want %s because of %q", got, way, why)
	}
	for _, at := range elsewhere {
		if got := a.try(order{Ask: "tcp", Addr: at, Bytes: 1 << 20}); got.Err != "" {
			t.Errorf("%s by %s: %s", at, way, got.Err)
		}
	}
}

// TestRootFirewallComesLater: pods go out on the way that is possible, also when that changes. What goes through the
// process does so until it ends.
func TestRootFirewallComesLater(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	n := open(t, config(t))
	a := podIn(t, n, "a", plain(5))
	goesOut := func(way nodens.Egress, why string) {
		t.Helper()
		testGoesOut(t, n, a, way, why, neighbour+":80")
	}
	goesOut(nodens.EgressMasquerade, "")
	for range 2 {
		undo := policyDrops(t)
		testVerifyFails(t, n)
		check(t, n.Verify(t.Context()))
		goesOut(nodens.EgressProcess, "FORWARD of the machine's table filter drops")
		a.do(order{Hold: 3, Addr: neighbour + ":80"})

		undo()
		check(t, n.Verify(t.Context()))
		goesOut(nodens.EgressProcess, "FORWARD of the machine's table filter drops") // It may be back at once.
		check(t, n.Verify(t.Context()))
		goesOut(nodens.EgressMasquerade, "")
		a.do(order{Finish: true})
	}
	setting := "/proc/sys/net/ipv4/conf/lan0/forwarding"
	check(t, os.WriteFile(setting, []byte("0"), 0))
	check(t, n.Verify(t.Context()))
	goesOut(nodens.EgressProcess, "net.ipv4.conf.lan0.forwarding is 0")
}

// A range that the machine uses is refused, by the name of the route; one that a gateway has a wider route to is not.
func TestRootRangeInUse(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	lan0 := linkOf(t, "lan0")
	for route, refused := range map[string]bool{"10.244.0.0/16": true, "10.244.0.128/25": true, "10.0.0.0/8": false} {
		r := &netlink.Route{LinkIndex: lan0.Attrs().Index, Dst: ipnet(route)}
		if !refused {
			r.Gw = netip.MustParseAddr(neighbour).AsSlice()
		}
		check(t, netlink.RouteAdd(r))
		err := nodens.InUse(netip.MustParsePrefix("10.244.0.0/16"))
		if err == nil || errors.Is(err, nodens.ErrHides) == refused {
			t.Errorf("beside a route to %s, of the range it is said: %v", route, err)
		}
		n, err := nodens.Open(t.Context(), config(t))
		if want := fmt.Sprintf("it has a route to %s over lan0", route); refused &&
			(err == nil || !strings.Contains(err.Error(), want)) || !refused && err != nil {
			t.Errorf("beside a route to %s: %v", route, err)
		}
		if err == nil {
			check(t, n.Close())
			check(t, nodens.Remove(t.Context(), config(t)))
		}
		check(t, netlink.RouteDel(r))
		nothingLeft(t)
	}
}

// A server in another network namespace than the one before says so, and leaves everything as it is.
func TestRootOtherNamespace(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	cfg := config(t)
	n := open(t, cfg)
	a := podIn(t, n, "a", plain(5))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NODENS_TEST=opener")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "linked to another network namespace") {
		t.Errorf("a server in another network namespace: %s, %v", out, err)
	}
	a.do(order{Ask: "tcp", Addr: neighbour + ":80", Bytes: 1000})
}

// Pods hand on large pieces to each other, and to elsewhere none that the link of the machine's default route does not
// take: the kernel would make packets of them in front of it.
func TestRootSegments(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world(t)
	lan0 := linkOf(t, "lan0")
	for _, size := range []int{64 << 10, 100_000, 500_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			check(t, netlink.LinkSetGSOIPv4MaxSize(lan0, size))
			before := linkOf(t, "lan0").Attrs().Statistics.TxPackets
			testSegments(t, neighbour+":80")
			pieces := linkOf(t, "lan0").Attrs().Statistics.TxPackets - before
			if most := uint64(3 * (40 << 20) / mtu / 2); pieces == 0 || pieces > most {
				t.Errorf("the pod's three connections came to lan0 in %d pieces; want at most %d", pieces, most)
			}
		})
	}
}

// Between pods packets are larger than those that the machine's link takes, and to elsewhere they are not. Who is not
// told so by its routes, which those to Services do not, is told by the node namespace.
func TestRootLargePackets(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	world6(t)
	n, a, _ := twoPods(t, config(t))
	if a.do(order{Facts: true}).Links["eth0"].Segment == 0 {
		t.Skip("this kernel has no bound of segments of IPv4")
	}
	const size = largeMTU - 100
	whole := func(addr string) answer { return a.try(order{Datagram: size, Whole: true, Addr: addr}) }
	for i, to := range addresses(6) {
		if got := whole(netip.AddrPortFrom(to, 80).String()); got.Err != "" {
			t.Errorf("a packet of %d bytes from pod to pod: %s", size, got.Err)
		}
		at := net.JoinHostPort([]string{neighbour, neighbour6}[i], "80")
		if got := whole(at); got.Err != unix.EMSGSIZE.Error() || got.Text != "route" {
			t.Errorf("a packet of %d bytes to %s: %+v; want that it is too long", size, at, got)
		}
		a.do(order{Datagram: size, Addr: at})
		a.do(order{Unlimited: []string{neighbour, neighbour6}[i]})
		if got := whole(at); got.Err != unix.EMSGSIZE.Error() || got.Text != "network" {
			t.Errorf("a packet of %d bytes to %s over a route that takes it: %+v; want that it is too long", size, at, got)
		}
		a.do(order{Datagram: size, Addr: at})
		a.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20})
	}
	for _, r := range []netip.Prefix{pods4, pods6}[:len(addresses(5))] {
		_, machine := nodens.NodeAddresses(r)
		if got := whole(netip.AddrPortFrom(machine, 80).String()); got.Err != unix.EMSGSIZE.Error() || got.Text != "route" {
			t.Errorf("a packet of %d bytes to the machine's own address %s: %+v; want that it is too long", size, machine, got)
		}
	}
	// A pod whose link takes small packets alone, as those had that versions before this one have connected.
	c := servesAll(podIn(t, n, "c", nodens.AttachConfig{Addresses: addresses(7)[:1], MTU: mtu / 6}))
	const toC = "10.244.0.7:80"
	if got := whole(toC); got.Err != unix.EMSGSIZE.Error() || got.Text != "network" {
		t.Errorf("a packet of %d bytes to a pod with a smaller link: %+v; want that it is too long", size, got)
	}
	a.do(order{Datagram: size, Addr: toC})
	a.do(order{Ask: "tcp", Addr: toC, Bytes: 1 << 20})
	for _, at := range []string{"10.244.0.6:80", neighbour + ":80"} {
		c.do(order{Datagram: size, Addr: at})
		c.do(order{Ask: "tcp", Addr: at, Bytes: 1 << 20})
	}
	// Repeated, all is as it was.
	a.attach(n, "a", plain(5))
	if got := whole("10.244.0.6:80"); got.Err != "" {
		t.Errorf("connected again: %s", got.Err)
	}
}

func TestRootBandwidth(t *testing.T) { asRoot(t, testBandwidth) }

// TestRootGuard: what comes to the machine with the address of a pod reaches no pod, wherever the machine forwards it
// from, and however little it asks where such an address is.
func TestRootGuard(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	w := world(t)
	n := open(t, config(t))
	a := servesAll(podIn(t, n, "a", plain(5)))
	b := servesAll(podIn(t, n, "b", plain(6)))
	for _, of := range []string{"all", "lan0"} {
		check(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/rp_filter", []byte("0"), 0))
	}
	route := exec.Command("nsenter", "--net=/proc/self/fd/3", "ip", "route", "add", "10.244.0.0/24", "via", lan)
	route.ExtraFiles = []*os.File{w.netns}
	if out, err := route.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const other, unused = "10.244.0.6", "10.244.0.99"
	for _, from := range []string{other, unused} {
		w.do(order{Take: from + "/32", On: "lan1"})
		w.do(order{Spoof: from, Addr: "10.244.0.5:80"})
	}
	// The packet after the others has arrived, so that they would have too.
	if got := w.do(order{Ask: "udp", Addr: "10.244.0.5:80"}).Text; clientIn(got) != neighbour {
		t.Fatalf("the neighbour's own address is seen as %s", got)
	}
	heard := a.do(order{Heard: true}).Text
	for _, from := range []string{other, unused} {
		if strings.Contains(heard, from+":") {
			t.Errorf("the pod has heard from %s, as %s", heard, from)
		}
	}
	if got := b.do(order{Ask: "udp", Addr: "10.244.0.5:80"}).Text; clientIn(got) != other {
		t.Errorf("the pod that has the address is seen as %s", got)
	}
}
