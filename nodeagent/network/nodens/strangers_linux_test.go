package nodens_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

// ears is where the descriptor stands of a socket that hears of every change of the machine's nftables.
const ears = "NODENS_EARS"

// strangers gives the machine what others have there: a bridge with containers of somebody else, whose rules translate
// addresses and forward, rules of routing with the mark and the table that the node namespace has for itself, routes
// with its protocol, and settings that are not the usual ones.
func strangers(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	check(t, err)
	check(t, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}))
	check(t, os.Setenv(ears, strconv.Itoa(fd)))

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Alias = "docker0", "somebody else's"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	check(t, netlink.LinkAdd(bridge))
	check(t, netlink.LinkSetAlias(bridge, attrs.Alias))
	check(t, netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipnet("172.17.0.1/16")}))
	check(t, netlink.LinkSetUp(bridge))
	port := netlink.NewLinkAttrs()
	port.Name, port.MasterIndex = "veth1a2b", bridge.Index
	veth := netlink.NewVeth(port)
	veth.PeerName = "veth3c4d"
	check(t, netlink.LinkAdd(veth))

	lan0 := linkOf(t, "lan0")
	check(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: lan0.Attrs().Index, IP: net.ParseIP("192.0.2.50"),
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 50}}))
	const mark, table, protocol = 0x6d70, 100, 0x6d
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table, rule.Priority = family, mark, table, table
		check(t, netlink.RuleAdd(rule))
	}
	for _, r := range []*netlink.Route{
		{Dst: ipnet("203.0.113.128/25"), LinkIndex: bridge.Index, Table: table},
		{Dst: ipnet("2001:db8:77::/64"), Type: unix.RTN_UNREACHABLE, Table: table},
		{Dst: ipnet("198.18.0.0/15"), LinkIndex: lan0.Attrs().Index, Gw: net.ParseIP("192.0.2.7")},
		{Dst: ipnet("10.66.0.0/16"), Type: unix.RTN_BLACKHOLE},
	} {
		r.Protocol = protocol
		check(t, netlink.RouteAdd(r))
	}
	for name, value := range map[string]string{
		"ipv4/conf/docker0/route_localnet": "1", "ipv4/conf/lan0/arp_ignore": "1", "ipv6/conf/default/accept_ra": "0",
		"ipv4/conf/default/send_redirects": "1", "ipv4/conf/default/rp_filter": "2",
		"ipv4/conf/all/send_redirects": "1", "ipv4/conf/all/rp_filter": "2", "ipv6/conf/default/addr_gen_mode": "0",
		"netfilter/nf_conntrack_tcp_timeout_established": "86400",
	} {
		check(t, os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
	}
	strangersRules(t)
}

// strangersRules makes tables as Docker does, for IPv4, and firewalld, for both families.
func strangersRules(t *testing.T) {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	name := func(key expr.MetaKey, op expr.CmpOp, link string) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: []byte(link + "\x00")}}
	}
	add := func(c *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: slices.Concat(parts...), UserData: []byte("theirs")})
	}
	one := func(e expr.Any) []expr.Any { return []expr.Any{e} }
	accept := one(&expr.Verdict{Kind: expr.VerdictAccept})

	nat := conn.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyIPv4})
	containers := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(16, 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{172, 17, 0, 0}},
	}
	add(conn.AddChain(&nftables.Chain{Name: "POSTROUTING", Table: nat, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}),
		containers, name(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "docker0"), one(&expr.Masq{}))
	ports := conn.AddChain(&nftables.Chain{Name: "DOCKER", Table: nat})
	add(ports, name(expr.MetaKeyIIFNAME, expr.CmpOpEq, "docker0"), one(&expr.Verdict{Kind: expr.VerdictReturn}))
	add(conn.AddChain(&nftables.Chain{Name: "PREROUTING", Table: nat, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest}),
		[]expr.Any{&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: ports.Name}})

	firewalld := conn.AddTable(&nftables.Table{Name: "firewalld", Family: nftables.TableFamilyINet})
	set := &nftables.Set{Table: firewalld, Name: "trusted", KeyType: nftables.TypeIPAddr}
	check(t, conn.AddSet(set, []nftables.SetElement{{Key: []byte{192, 0, 2, 60}}, {Key: []byte{192, 0, 2, 61}}}))
	forward := conn.AddChain(&nftables.Chain{Name: "filter_FORWARD", Table: firewalld, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityRef(10)})
	add(forward, []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Xor: make([]byte, 4),
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)}}, accept)
	add(forward, name(expr.MetaKeyIIFNAME, expr.CmpOpEq, "docker0"), accept)
	check(t, conn.Flush())
}

// rejects has the table of firewalld's kind reject what it has not accepted.
func rejects(t *testing.T) {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	table := &nftables.Table{Name: "firewalld", Family: nftables.TableFamilyINet}
	conn.AddRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "filter_FORWARD", Table: table},
		Exprs: []expr.Any{
			&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}})
	check(t, conn.Flush())
}

// changesHeard returns how many messages about changes of the machine's nftables have come since the last call.
func changesHeard(t *testing.T) (messages int) {
	t.Helper()
	fd, err := strconv.Atoi(os.Getenv(ears))
	check(t, err)
	unix.CloseOnExec(fd)
	buf := make([]byte, 1<<20)
	for {
		_, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return messages
		}
		check(t, err)
		messages++
	}
}

func TestRootlessStrangers(t *testing.T) {
	if !onMachine(t, true, strangers) {
		return
	}
	if changesHeard(t) == 0 {
		t.Error("nobody tells of the rules that strangers have made")
	}
	testStrangers(t, nodens.EgressProcess, served(t, "tcp", outside), func(string) bool { return false })
	if n := changesHeard(t); n > 0 {
		t.Errorf("%d messages tell of changes of the machine's rules", n)
	}
}

// testStrangers: whatever the pod network does, what others have on the machine stays as it is, and in the end there
// is nothing else. Ours says which lines of the machine's state may be there meanwhile.
func testStrangers(t *testing.T, way nodens.Egress, elsewhere string, ours func(line string) bool) {
	before := machine(t)
	compare := func(when string, ours func(line string) bool) {
		t.Helper()
		now := machine(t)
		for line := range before {
			if !now[line] {
				t.Errorf("%s, this is no more: %s", when, line)
			}
		}
		for line := range now {
			if !before[line] && !ours(line) {
				t.Errorf("%s, this is new: %s", when, line)
			}
		}
	}
	cfg := config(t)
	n := open(t, cfg)
	if got := n.Status().Egress; got != way {
		t.Errorf("pods reach out by %s; want %s", got, way)
	}
	compare("with a network", ours)
	start := func(n *nodens.Namespace, sandbox string, host int) *pod {
		return podIn(t, n, sandbox, nodens.AttachConfig{Addresses: addresses(host), Ingress: 1 << 30, Egress: 1 << 30,
			HostPorts: []nodens.HostPort{
				{Network: "tcp", Host: netip.AddrPortFrom(netip.IPv4Unspecified(), 8000+uint16(host)), Port: 80}}})
	}
	works := func(n *nodens.Namespace, a, b *pod, host int) {
		t.Helper()
		b.do(order{Serve: "tcp", Addr: ":80"})
		a.do(order{Ask: "tcp", Addr: addresses(host)[0].String() + ":80", Bytes: 1 << 20})
		a.do(order{Ask: "tcp", Addr: elsewhere, Bytes: 1 << 20})
		_, err := askFrom("tcp", lan, fmt.Sprint(lan, ":", 8000+host))
		check(t, err)
	}
	a, b := start(n, "a", 5), start(n, "b", 6)
	check(t, n.AddAddresses(t.Context(), netip.MustParseAddr("10.96.0.10")))
	translate(t, n, "10.244.0.1", 7777, "10.244.0.6", 80)
	p, err := n.ServePort(t.Context(), nodens.PortConfig{Network: "tcp",
		Listen:  netip.MustParseAddrPort("0.0.0.0:8081"),
		Targets: []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:7777")}})
	check(t, err)
	works(n, a, b, 6)
	_, err = askFrom("tcp", lan, lan+":8081")
	check(t, err)
	compare("with pods, their ports and a Service", ours)

	killed := bothHelpers(t, 0)[0]
	check(t, syscall.Kill(killed, syscall.SIGKILL))
	bothHelpers(t, killed)
	check(t, n.Verify(t.Context()))
	compare("after the helper was killed", ours)
	check(t, n.Detach(t.Context(), "a"))
	check(t, p.Close())
	check(t, n.Close())
	compare("without a server", ours)

	killAll(t)
	n = open(t, cfg)
	c, d := start(n, "c", 7), start(n, "d", 8)
	works(n, c, d, 8)
	check(t, n.Verify(t.Context()))
	compare("after everything was killed", ours)
	check(t, n.Close())
	check(t, nodens.Remove(t.Context(), cfg))
	compare("when all is removed", func(string) bool { return false })
}

// machine returns what the machine has, in lines of text: links, addresses, neighbours, queues, rules and routes of
// all tables, settings, and as root nftables. Without are what the kernel does by itself some time after a link is up,
// for addresses of fe80::, and counts.
func machine(t *testing.T) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	say := func(format string, args ...any) { lines[fmt.Sprintf(format, args...)] = true }
	links, err := netlink.LinkList()
	check(t, err)
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	automatic := func(ip net.IP) bool { return ip.To4() == nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast()) }
	for _, l := range links {
		a := l.Attrs()
		say("link %s %d %s mtu %d up %v %s alias %q of %q promiscuous %d pieces %d %d", a.Name, a.Index, l.Type(), a.MTU,
			a.Flags&net.FlagUp != 0, a.HardwareAddr, a.Alias, names[a.MasterIndex], a.Promisc, a.GSOMaxSize, a.GSOIPv4MaxSize)
		queues, err := netlink.QdiscList(l)
		check(t, err)
		for _, q := range queues {
			say("queue of %s: %s %v", a.Name, q.Type(), q.Attrs())
		}
		addresses, err := netlink.AddrList(l, unix.AF_UNSPEC)
		check(t, err)
		for _, addr := range addresses {
			if !automatic(addr.IP) {
				say("address of %s: %s label %s scope %d", a.Name, addr.IPNet, addr.Label, addr.Scope)
			}
		}
	}
	neighbours, err := netlink.NeighList(0, unix.AF_UNSPEC)
	check(t, err)
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			say("neighbour of %s: %s %s", names[n.LinkIndex], n.IP, n.HardwareAddr)
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(family)
		check(t, err)
		for _, r := range rules {
			say("rule %d of family %d: %s mark %#x from %s to %s in %q out %q", r.Priority, family, r, r.Mark, r.Src, r.Dst,
				r.IifName, r.OifName)
		}
		every := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		routes, err := netlink.RouteListFiltered(family, every, netlink.RT_FILTER_TABLE)
		check(t, err)
		for _, r := range routes {
			if r.Dst == nil || !automatic(r.Dst.IP) {
				say("route of table %d to %s type %d by %s source %s over %q protocol %d scope %d metric %d", r.Table, r.Dst,
					r.Type, r.Gw, r.Src, names[r.LinkIndex], r.Protocol, r.Scope, r.Priority)
			}
		}
	}
	settingsOf(t, say)
	if os.Geteuid() == 0 {
		rulesOf(t, say)
	}
	return lines
}

// settingsOf says all settings of the network namespace that can be read.
func settingsOf(t *testing.T, say func(string, ...any)) {
	t.Helper()
	const root = "/proc/sys/net"
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return nil
		}
		if err != nil || d.IsDir() || d.Name() == "nf_conntrack_count" {
			return err
		}
		if value, err := os.ReadFile(path); err == nil {
			say("setting %s: %q", path, bytes.TrimSpace(value))
		}
		return nil
	}))
	for _, name := range []string{"ip_tables_names", "ip6_tables_names", "arp_tables_names"} {
		if tables, err := os.ReadFile("/proc/self/net/" + name); err == nil {
			say("%s: %q", name, tables)
		}
	}
}

// rulesOf says what nftables has, as the kernel sends it: with the numbers of rules, which are others when they have
// been made anew.
func rulesOf(t *testing.T, say func(string, ...any)) {
	t.Helper()
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, nil)
	check(t, err)
	defer conn.Close()
	const nameOfTable, nameOfSet = 1, 2 // The first attributes of all kinds.
	dump := func(kind int, family byte, of ...mdlayher.Attribute) (sets [][]mdlayher.Attribute, families []byte) {
		body, err := mdlayher.MarshalAttributes(of)
		check(t, err)
		all, err := conn.Execute(mdlayher.Message{
			Header: mdlayher.Header{Type: mdlayher.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
				Flags: mdlayher.Request | mdlayher.Dump},
			Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, body...),
		})
		check(t, err)
		for _, m := range all {
			attributes, err := mdlayher.UnmarshalAttributes(m.Data[4:])
			check(t, err)
			sets, families = append(sets, attributes), append(families, m.Data[0])
			say("nftables %d of %s: %x", kind, bytes.TrimRight(attributes[0].Data, "\x00"), m.Data[4:])
		}
		return sets, families
	}
	for _, kind := range []int{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETOBJ} {
		dump(kind, unix.AF_UNSPEC)
	}
	sets, families := dump(unix.NFT_MSG_GETSET, unix.AF_UNSPEC)
	for i, set := range sets {
		dump(unix.NFT_MSG_GETSETELEM, families[i], mdlayher.Attribute{Type: nameOfTable, Data: set[0].Data},
			mdlayher.Attribute{Type: nameOfSet, Data: set[1].Data})
	}
}
