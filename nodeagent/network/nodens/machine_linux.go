package nodens

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// uplinkName is what the node namespace calls its link to the machine; not one that begins like those of pods.
const uplinkName = "uplink"

// protocol marks our routes on the machine.
const protocol = 0x6d

// largestSegment is less than what a veth can take at once, 512 KiB: tools that capture packets take 256 KiB of each.
const largestSegment = 192 << 10

const (
	// insideFactor is by how much packets between pods are larger than those that leave: 9000 bytes, as of many local
	// networks, where the others have 1500. Three times would do for the largest segment.
	insideFactor = 6
	// ipAndTCP are the headers in a packet of IPv4 with TCP's time stamps, which the MTU counts; pieceHeaders is more
	// than all headers of a piece.
	ipAndTCP     = 52
	pieceHeaders = 256
)

// usualMTU is that of links where there is no default route to ask.
const usualMTU = 1500

// linkPrefix is how the machine's links to node namespaces begin.
const linkPrefix = "mp"

// hostLink is what the machine calls its link to the node namespace of a cluster, hostTable its table of nftables.
func hostLink(cluster string) string  { return linkPrefix + hash(cluster) }
func hostTable(cluster string) string { return "monoplane-" + hash(cluster) }

// aliasFor is the alias of the machine's link to a network namespace.
func aliasFor(inode uint64) string { return "monoplane " + strconv.FormatUint(inode, 10) }

// connect makes the veth between the machine and the node namespace, with its addresses and routes, and returns the
// machine's addresses on it. The alias of the link names the namespace that it leads to.
func connect(cfg *Config, ns *os.File, inode uint64, want *wire.Setup) ([]netip.Addr, error) {
	name := hostLink(cfg.Cluster)
	alias := aliasFor(inode)
	link, err := findLink(name)
	if err != nil {
		return nil, err
	}
	if link != nil && link.Attrs().Alias != alias {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) { // It goes with the namespace.
			return nil, fmt.Errorf("the link %s of a node namespace that is no more: %w", name, err)
		}
		link = nil
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, want.MTU
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU, veth.PeerNamespace = uplinkName, uint32(want.MTU), netlink.NsFd(int(ns.Fd()))
		if err := netlink.LinkAdd(veth); errors.Is(err, unix.EEXIST) {
			return nil, errors.New("the node namespace is linked to another network namespace than this process's: " +
				"the server before ran there. Run this one there, too, or end everything with \"monoplane down\" first")
		} else if err != nil {
			return nil, fmt.Errorf("the link %s to the node namespace: %w", name, err)
		}
		if link, err = netlink.LinkByName(name); err != nil {
			return nil, fmt.Errorf("the link %s to the node namespace: %w", name, err)
		}
		if err := netlink.LinkSetAlias(link, alias); err != nil {
			return nil, fmt.Errorf("the link %s to the node namespace: %w", name, err)
		}
	}
	if err := netlink.LinkSetMTU(link, want.MTU); err != nil {
		return nil, fmt.Errorf("the MTU %d of the link %s: %w", want.MTU, name, err)
	}
	if err := helper.Segment(&netlink.Handle{}, link, want.Segment, false); err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("the link %s to the node namespace: %w", name, err)
	}
	var machine []netip.Addr
	for _, r := range cfg.PodRanges {
		_, own := NodeAddresses(r)
		if err := route(cfg, link, r, own); err != nil {
			return nil, err
		}
		machine = append(machine, own)
	}
	return machine, nil
}

// route leads the pods' and the Services' ranges of one family to the node namespace.
func route(cfg *Config, link netlink.Link, podRange netip.Prefix, own netip.Addr) error {
	addr := &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(own, own.BitLen()))}
	if own.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("the machine's address %s for pods: %w", own, err)
	}
	for _, r := range routesOver(cfg, link, podRange) {
		if taken, err := takenBy(r); err != nil {
			return err
		} else if taken != "" {
			cfg.Log.Warn("the machine reaches other Services at these addresses than those of this cluster: it has a route "+
				"already; --service-cluster-ip-range chooses others", "addresses", r.Dst, "link", taken)
			continue
		}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("the machine's route %s to the node namespace: %w", r.Dst, err)
		}
	}
	return nil
}

// routesOver returns the routes of one family that lead to the node namespace.
func routesOver(cfg *Config, link netlink.Link, podRange netip.Prefix) []*netlink.Route {
	node, own := NodeAddresses(podRange)
	index := link.Attrs().Index
	routes := []*netlink.Route{{LinkIndex: index, Dst: ipnet(netip.PrefixFrom(node, node.BitLen())),
		Scope: netlink.SCOPE_LINK, Src: own.AsSlice(), Protocol: protocol}}
	for _, to := range append([]netip.Prefix{podRange}, cfg.ServiceRanges...) {
		if to.Addr().Is4() == own.Is4() {
			routes = append(routes, &netlink.Route{LinkIndex: index, Dst: ipnet(to), Gw: node.AsSlice(),
				Src: own.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Protocol: protocol})
		}
	}
	return routes
}

// reachesServices tells whether the machine's routes to the Services' ranges lead to this cluster.
func reachesServices(cfg *Config) (bool, error) {
	link, err := netlink.LinkByName(hostLink(cfg.Cluster))
	if err != nil {
		return false, fmt.Errorf("the link %s to the node namespace: %w", hostLink(cfg.Cluster), err)
	}
	for _, r := range cfg.PodRanges {
		for _, to := range routesOver(cfg, link, r) {
			if taken, err := takenBy(to); taken != "" || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// takenBy returns the link over which the machine reaches exactly what r leads to, if that is another one: another
// cluster's, whose Services have the same addresses.
func takenBy(r *netlink.Route) (link string, err error) {
	same, err := netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{Dst: r.Dst}, netlink.RT_FILTER_DST)
	if err != nil {
		return "", fmt.Errorf("the machine's routes to %s: %w", r.Dst, err)
	}
	for _, other := range same {
		if other.LinkIndex == r.LinkIndex || other.Table != unix.RT_TABLE_MAIN || other.Type != unix.RTN_UNICAST {
			continue
		}
		if l, err := netlink.LinkByIndex(other.LinkIndex); err == nil {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}

// disconnect takes away what the machine has of a cluster's node namespace.
func disconnect(cluster string) error {
	link, err := findLink(hostLink(cluster))
	if err != nil {
		return err
	}
	if link != nil {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("the link %s to the node namespace: %w", hostLink(cluster), err)
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	if err := remains(hostTable(cluster)).takeAway(0); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// ErrHides is the error of a range that can be had, and is a part of a network that the machine has a route to: what
// has those addresses there cannot be reached any more.
var ErrHides = errors.New("a part of a network that the machine has a route to is hidden by the pod range")

// inUse says which route of the machine keeps a pod range from being used: one that leads somewhere within it, or a
// network that the machine itself is in. A wider route through a gateway goes on working for the rest of its range:
// ErrHides.
func inUse(ranges []netip.Prefix, own string) error {
	routes, err := netlink.RouteList(nil, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("the machine's routes: %w", err)
	}
	var hides error
	for _, r := range routes {
		to, ok := prefix(r.Dst)
		if !ok || to.Bits() == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil || link.Attrs().Name == own {
			continue
		}
		for _, p := range ranges {
			if !p.Overlaps(to) {
				continue
			}
			if to.Bits() < p.Bits() && r.Gw != nil {
				hides = fmt.Errorf("%w: %s, of %s over %s", ErrHides, p, to, link.Attrs().Name)
				continue
			}
			return fmt.Errorf("the pod range %s is in use on this machine: it has a route to %s over %s; choose another range",
				p, to, link.Attrs().Name)
		}
	}
	return hides
}

// InUse says which route of the machine keeps a range from being used for the pods of a cluster that has none yet, or
// speaks against it (ErrHides); nil if nothing does.
func InUse(podRange netip.Prefix) error { return inUse([]netip.Prefix{podRange}, "") }

// defaultMTU returns the MTU of the link through which the machine's default route goes.
func defaultMTU() (int, error) {
	link, err := defaultLink()
	if err != nil || link == nil {
		return usualMTU, err
	}
	return link.Attrs().MTU, nil
}

// segment returns the most of a connection that pods may hand on in one piece, in bytes. Where the kernel forwards
// what they send, that is what the link of the default route takes: of larger pieces the kernel would have to make
// packets itself in front of that link, which is work that the link could do.
func segment(cfg *Config) (int, error) {
	if cfg.Rootless {
		return largestSegment, nil
	}
	link, err := defaultLink()
	if err != nil || link == nil {
		return largestSegment, err
	}
	return min(int(link.Attrs().GSOIPv4MaxSize), largestSegment), nil
}

// insideOf returns how large packets and pieces may be between pods, where what leaves the node has packets of mtu
// bytes and pieces of segment bytes; nil if that is as much as we want for both.
func insideOf(cfg *Config, mtu, segment int) *wire.Inside {
	if segment == 0 || segment >= largestSegment || mtu <= ipAndTCP {
		return nil
	}
	in := &wire.Inside{Ranges: slices.Concat(cfg.PodRanges, cfg.ServiceRanges),
		MTU: min(insideFactor*mtu, math.MaxUint16), Segment: largestSegment,
		Packets: max((segment-pieceHeaders)/(mtu-ipAndTCP), 1)}
	for _, r := range cfg.PodRanges {
		_, machine := NodeAddresses(r)
		in.Machine = append(in.Machine, machine)
	}
	return in
}

// defaultLink returns nil if the machine has no default route.
func defaultLink() (netlink.Link, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("the machine's routes: %w", err)
		}
		for _, r := range routes {
			to, ok := prefix(r.Dst)
			if ok && to.Bits() > 0 || r.Type != unix.RTN_UNICAST || r.LinkIndex == 0 {
				continue
			}
			link, err := netlink.LinkByIndex(r.LinkIndex)
			if err != nil {
				return nil, fmt.Errorf("the link of the machine's default route: %w", err)
			}
			return link, nil
		}
	}
	return nil, nil
}

// machineLinks are links of the machine, by their numbers.
type machineLinks struct {
	// forwarding are those over which the machine forwards what it receives in each of the families that pods have: of
	// IPv4 at 0, of IPv6 at 1.
	forwarding [2][]uint32
	// loopback is that of the machine's own programs, 0 where it is down.
	loopback uint32
	// all are these and the others, but for the link to the node namespace.
	all []uint32
}

// readLinks looks at the links of the machine.
func readLinks(cfg *Config) (links machineLinks, err error) {
	found, err := netlink.LinkList()
	if err != nil {
		return links, fmt.Errorf("the machine's links: %w", err)
	}
	for _, l := range found {
		name, index := l.Attrs().Name, uint32(l.Attrs().Index) //nolint:gosec // It is none below 1.
		if name == hostLink(cfg.Cluster) {
			continue
		}
		links.all = append(links.all, index)
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			if l.Attrs().Flags&net.FlagUp != 0 {
				links.loopback = index
			}
			continue
		}
		for _, r := range cfg.PodRanges {
			setting := "ipv4/conf/" + name + "/forwarding"
			if r.Addr().Is6() {
				setting = "ipv6/conf/all/forwarding"
			}
			if isOn(setting) {
				i := nft.Index(r.Addr().Is6())
				links.forwarding[i] = append(links.forwarding[i], index)
			}
		}
	}
	return links, nil
}

// isOn tells whether a setting of the machine's network is another than 0. Those of a link that was taken away
// meanwhile are off.
func isOn(setting string) bool {
	v, err := os.ReadFile("/proc/sys/net/" + setting)
	return err == nil && strings.TrimSpace(string(v)) != "0"
}

// fromLoopback has our link take what the machine's programs send from their loopback, which no link does by itself,
// and bring the answers. Nobody can use that from the other end: the node namespace takes what is for such an address
// for its own.
func fromLoopback(cfg *Config) error {
	setting := "ipv4/conf/" + hostLink(cfg.Cluster) + "/route_localnet"
	if isOn(setting) {
		return nil
	}
	if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0); err != nil {
		return fmt.Errorf("the setting net.%s cannot be made 1: %w", strings.ReplaceAll(setting, "/", "."), err)
	}
	return nil
}

// settings returns which setting of the machine has it not forward, or that old rules may; empty if nothing does.
func settings(cfg *Config) (why string, err error) {
	out, err := defaultLink()
	if err != nil {
		return "", err
	}
	links := []string{hostLink(cfg.Cluster)}
	if out != nil {
		links = append(links, out.Attrs().Name)
	}
	for _, r := range cfg.PodRanges {
		old := "ip_tables_names"
		if r.Addr().Is6() {
			old = "ip6_tables_names"
		}
		// Of this thread, since the first of the process may have been left in another namespace.
		if tables, err := os.ReadFile("/proc/thread-self/net/" + old); err == nil && len(tables) > 0 {
			return "rules of the old iptables are loaded on the machine, and they may drop what is forwarded", nil
		}
		for _, link := range links {
			name, set := "net.ipv4.conf."+link+".forwarding", "ipv4/conf/"+link+"/forwarding"
			if r.Addr().Is6() {
				name, set = "net.ipv6.conf.all.forwarding", "ipv6/conf/all/forwarding"
			}
			v, err := os.ReadFile("/proc/sys/net/" + set)
			if err != nil {
				return "", fmt.Errorf("the machine's setting %s: %w", name, err)
			}
			if strings.TrimSpace(string(v)) == "0" {
				all, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
				if err == nil && r.Addr().Is4() && strings.TrimSpace(string(all)) == "0" {
					name = "net.ipv4.ip_forward" // It makes both 1.
				}
				return fmt.Sprintf("the machine does not forward: its setting %s is 0", name), nil
			}
		}
	}
	return "", nil
}

// foreign says which rules of somebody else are in the way; empty where none are.
type foreign struct {
	// forward drops whatever is forwarded, as a rule of firewalld and Docker does: also what pods send out.
	forward string
	// through may drop some of what is forwarded.
	through string
	// input judge what comes to the machine's own ports, output what its own programs send.
	input, output string
}

// othersRules looks at the rules of somebody else.
func othersRules(cfg *Config) (found foreign, err error) {
	conn, err := nftables.New()
	if err != nil {
		return foreign{}, fmt.Errorf("nftables of the machine: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return foreign{}, fmt.Errorf("the machine's chains of nftables: %w", err)
	}
	// Those of other families, such as ARP, have other hooks with the same numbers.
	routed := []nftables.TableFamily{nftables.TableFamilyINet, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}
	for _, c := range chains {
		if c.Hooknum == nil || c.Type != nftables.ChainTypeFilter || c.Table.Name == hostTable(cfg.Cluster) ||
			!slices.Contains(routed, c.Table.Family) {
			continue
		}
		all, err := conn.GetRules(c.Table, c)
		if err != nil {
			return foreign{}, fmt.Errorf("the machine's rules in %s %s: %w", c.Table.Name, c.Name, err)
		}
		drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		says := func(why *string, is bool, what string) {
			if is && *why == "" {
				*why = fmt.Sprintf("the chain %s of the machine's table %s %s", c.Name, c.Table.Name, what)
			}
		}
		switch *c.Hooknum {
		case *nftables.ChainHookForward:
			says(&found.forward, drops || slices.ContainsFunc(all, refusesAll), "drops what is forwarded")
			says(&found.through, drops || slices.ContainsFunc(all, mayRefuse), "judges what is forwarded")
		case *nftables.ChainHookInput:
			says(&found.input, drops || len(all) > 0, "judges what comes to the machine")
		case *nftables.ChainHookOutput:
			says(&found.output, drops || len(all) > 0, "judges what the machine itself sends")
		}
	}
	return found, nil
}

// mayRefuse tells whether a rule drops some of what comes to it, or leads to others that may.
func mayRefuse(r *nftables.Rule) bool {
	return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
		switch e := e.(type) {
		case *expr.Reject, *expr.Queue, *expr.Target:
			return true
		case *expr.Verdict:
			return e.Kind != expr.VerdictAccept && e.Kind != expr.VerdictReturn && e.Kind != expr.VerdictContinue
		default:
			return false
		}
	})
}

// refusesAll tells whether a rule drops whatever comes to it.
func refusesAll(r *nftables.Rule) bool {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			return true
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop
		default:
			return false
		}
	}
	return false
}

func findLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the machine's link %s: %w", name, err)
	}
	return link, nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix returns false for what has none, as some netlink answers for default routes do.
func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	if !ok {
		return netip.Prefix{}, false
	}
	if a.Is4In6() {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones), true
}
