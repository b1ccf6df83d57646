package helper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// The mark of packets that sockets of this namespace take although they are for other addresses, and the routing table
// that delivers them here. Of connections, mark is for those of such sockets.
const (
	mark  = 0x6d70
	table = 100
)

// Led is the mark of connections that no socket of this namespace takes, since the kernel leads them: those of pods to
// host ports, and those that were a transparent socket's before they came over the link to the machine.
const Led = 0x6d72

// betweenPods is the mark of connections that pods have with each other by way of the kernel alone.
const betweenPods = 0x6d73

// protocol marks routes as ours, so that what we have added can be told from what others have.
const protocol = 0x6d

// gateway4 is what pods have as the other end of their link.
var gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// setUp makes the node namespace as it should be. Every step can be repeated.
func (s *server) setUp(want *wire.Setup) error {
	h, err := handle()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := s.sysctls(); err != nil {
		return err
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo of the node namespace: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo of the node namespace: %w", err)
	}
	own := []netip.Addr{gateway4}
	for _, r := range want.PodRanges {
		own = append(own, r.Masked().Addr().Next())
	}
	for _, a := range own {
		if a.Is6() && !s.hello.IPv6 {
			return fmt.Errorf("the pod range of IPv6 cannot be used: this machine's kernel has IPv6 disabled")
		}
		if err := h.AddrReplace(lo, address(a)); err != nil {
			return fmt.Errorf("address %s of the node namespace: %w", a, err)
		}
	}
	if err := s.delivery(h, lo); err != nil {
		return err
	}
	for _, r := range want.ServiceRanges {
		// Without a route, what this namespace itself sends to a Service would fail before it is translated.
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipnet(r), Protocol: protocol,
			Src: source(want.PodRanges, r.Addr())}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("route of the service range %s: %w", r, err)
		}
	}
	if err := uplink(h, want); err != nil {
		return err
	}
	return setRules(want)
}

// sysctls has the namespace forward between its links.
func (s *server) sysctls() error {
	values := [][2]string{
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/all/rp_filter", "0"}, // The table of rules looks at sources, for both families.
		{"ipv4/conf/default/rp_filter", "0"},
		// Rules say what is for a socket, of both families. The kernel would ask sockets first: see led.
		{"ipv4/udp_early_demux", "0"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/default/send_redirects", "0"},
	}
	if s.hello.IPv6 {
		values = append(values, [][2]string{
			{"ipv6/conf/all/disable_ipv6", "0"},
			{"ipv6/conf/default/disable_ipv6", "0"},
			{"ipv6/conf/all/forwarding", "1"},
			{"ipv6/conf/default/forwarding", "1"},
			{"ipv6/conf/default/accept_dad", "0"}, // An address works at once.
			{"ipv6/conf/default/accept_ra", "0"},
			{"ipv6/conf/default/addr_gen_mode", "1"}, // No address of fe80:: but the gateway's.
		}...)
	}
	for _, v := range values {
		if err := sysctl(v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

// sysctl sets one of the network namespace of this thread.
func sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("the setting net/%s cannot be made %s in the namespace: %w", name, value, err)
	}
	return nil
}

// delivery has marked packets delivered to sockets of this namespace, whatever address they are for.
func (s *server) delivery(h *netlink.Handle, lo netlink.Link) error {
	families := []struct {
		family int
		all    netip.Prefix
	}{{unix.AF_INET, netip.MustParsePrefix("0.0.0.0/0")}, {unix.AF_INET6, netip.MustParsePrefix("::/0")}}
	for _, f := range families {
		if f.family == unix.AF_INET6 && !s.hello.IPv6 {
			continue
		}
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table, rule.Priority = f.family, mark, table, table
		if err := h.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("the rule that delivers marked packets: %w", err)
		}
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipnet(f.all), Table: table, Family: f.family,
			Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: protocol}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("the route that delivers marked packets: %w", err)
		}
	}
	return nil
}

// uplink connects the namespace to the machine, or has the kernel say at once that there is no way out.
func uplink(h *netlink.Handle, want *wire.Setup) error {
	var link netlink.Link
	if want.Uplink != "" {
		var err error
		if link, err = h.LinkByName(want.Uplink); err != nil {
			return fmt.Errorf("the link %s to the machine: %w", want.Uplink, err)
		}
		if err := h.LinkSetMTU(link, want.MTU); err != nil {
			return fmt.Errorf("the MTU %d of the link to the machine: %w", want.MTU, err)
		}
		if err := Segment(h, link, want.Segment, false); err != nil {
			return err
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("the link %s to the machine: %w", want.Uplink, err)
		}
	}
	for _, r := range want.PodRanges {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Addr().Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if link == nil {
			if err := noUplink(h, r, all, source(want.PodRanges, r.Addr())); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(want.Machine, func(a netip.Addr) bool { return a.Is4() == r.Addr().Is4() })
		if i < 0 {
			return fmt.Errorf("the machine has no address for the pod range %s", r)
		}
		if r.Addr().Is6() {
			// The machine asks on the link who has the address, and of IPv6 the kernel answers for the link's own alone.
			own := r.Masked().Addr().Next()
			if err := h.AddrReplace(link, address(own)); err != nil {
				return fmt.Errorf("the address %s on the link %s: %w", own, want.Uplink, err)
			}
		}
		src := source(want.PodRanges, r.Addr())
		routes := []*netlink.Route{
			nobody(r),
			{LinkIndex: link.Attrs().Index, Dst: ipnet(single(want.Machine[i])), Scope: netlink.SCOPE_LINK,
				Protocol: protocol, Src: src},
			{LinkIndex: link.Attrs().Index, Dst: ipnet(all), Gw: want.Machine[i].AsSlice(), Protocol: protocol, Src: src,
				Flags: int(netlink.FLAG_ONLINK)},
		}
		for _, route := range routes {
			if err := h.RouteReplace(route); err != nil {
				return fmt.Errorf("the route %s to the machine: %w", route.Dst, err)
			}
		}
	}
	return nil
}

// nobody is the route of what is for pods that are not there: it has no way, which the kernel says at once. To the
// machine, it would come back from there.
func nobody(pods netip.Prefix) *netlink.Route {
	return &netlink.Route{Dst: ipnet(pods), Type: unix.RTN_UNREACHABLE, Protocol: protocol}
}

// noUplink makes the routes of a family where there is no link to the machine. What comes from pods and is for neither
// pods nor Services is caught before it is routed. What this namespace itself sends elsewhere, such as from a port of
// the machine to the address of a load balancer, has a way to nowhere, so that it can be translated; the rules refuse
// what is not.
func noUplink(h *netlink.Handle, pods, all netip.Prefix, src net.IP) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo of the node namespace: %w", err)
	}
	for _, route := range []*netlink.Route{
		nobody(pods),
		{LinkIndex: lo.Attrs().Index, Dst: ipnet(all), Protocol: protocol, Src: src},
	} {
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("the route %s of a namespace without a link to the machine: %w", route.Dst, err)
		}
	}
	return nil
}

// changeAddresses gives the namespace addresses of its own, or takes them away.
func changeAddresses(want *wire.Addresses) error {
	h, err := handle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo of the node namespace: %w", err)
	}
	for _, a := range want.Add {
		if err := h.AddrReplace(lo, address(a)); err != nil {
			return fmt.Errorf("address %s of the node namespace: %w", a, err)
		}
	}
	for _, a := range want.Remove {
		if err := h.AddrDel(lo, address(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("address %s of the node namespace: %w", a, err)
		}
	}
	return nil
}

// source returns the node's own address of the family of a.
func source(podRanges []netip.Prefix, a netip.Addr) net.IP {
	for _, r := range podRanges {
		if r.Addr().Is4() == a.Is4() {
			return r.Masked().Addr().Next().AsSlice()
		}
	}
	return nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// address is one that stands for itself alone, and works at once.
func address(a netip.Addr) *netlink.Addr {
	set := &netlink.Addr{IPNet: ipnet(single(a))}
	if a.Is6() {
		set.Flags = unix.IFA_F_NODAD
	}
	return set
}
