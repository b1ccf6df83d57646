package helper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

const (
	// PodPrefix begins the names of the pods' links in the node namespace.
	PodPrefix = "mp"
	// podLink is what a pod calls its link.
	podLink = "eth0"
	// mostAlias is how long an alias of a link can be: the kernel's IFALIASZ without its end.
	mostAlias = 255
	// carrierTime is how long the kernel may take to see that a link is up, which is a second where it is in no hurry.
	carrierTime  = 5 * time.Second
	carrierPause = 200 * time.Microsecond
)

var gateway6 = netip.MustParseAddr("fe80::1")

// LinkName is what the link of a sandbox is called.
func LinkName(sandbox string) string {
	sum := sha256.Sum256([]byte(sandbox))
	return PodPrefix + hex.EncodeToString(sum[:6])
}

// attach connects a pod's namespace to this one, or makes the connection that there is as it should be.
//
// The alias of both ends is the sandbox. A link without it is one that a crash has left half done, and is made anew.
func attach(want *wire.Attach, ns *os.File) error {
	if want.Sandbox == "" || len(want.Sandbox) > mostAlias {
		return fmt.Errorf("the name of a sandbox has %d bytes; it needs 1 to %d", len(want.Sandbox), mostAlias)
	}
	h, err := handle()
	if err != nil {
		return err
	}
	defer h.Close()
	near, err := pair(h, want, ns)
	if err != nil {
		return err
	}
	if near.Attrs().GSOIPv4MaxSize == 0 {
		want.Inside = nil
	}
	if err := inside(ns, func(pod *netlink.Handle) error { return podSide(pod, want) }); err != nil {
		return err
	}
	if err := nodeSide(h, near, want); err != nil {
		return err
	}
	return inside(ns, func(pod *netlink.Handle) error { return works(pod, podLink) })
}

// works waits until what is sent over the pod's link arrives. The kernel sees in its own time that the other end of a
// veth is up, and until then drops what is sent, so that the first connection of a pod would wait for a second.
func works(pod *netlink.Handle, name string) error {
	for deadline := time.Now().Add(carrierTime); ; time.Sleep(carrierPause) {
		link, err := pod.LinkByName(name)
		if err != nil {
			return fmt.Errorf("the pod's link: %w", err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the pod's link does not come up: it is %s after %s", link.Attrs().OperState, carrierTime)
		}
	}
}

// pair returns this end of the pod's veth, whose other end is in the pod.
func pair(h *netlink.Handle, want *wire.Attach, ns *os.File) (netlink.Link, error) {
	name := LinkName(want.Sandbox)
	near, err := linkIfAny(h, name)
	if err != nil {
		return nil, err
	}
	if near != nil {
		whole := near.Attrs().Alias == want.Sandbox
		if whole {
			err = inside(ns, func(pod *netlink.Handle) error {
				far, err := linkIfAny(pod, podLink)
				whole = err == nil && far != nil && far.Attrs().Alias == want.Sandbox &&
					far.Attrs().ParentIndex == near.Attrs().Index && near.Attrs().ParentIndex == far.Attrs().Index
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		if whole {
			return near, nil
		}
		if err := h.LinkDel(near); err != nil {
			return nil, fmt.Errorf("the link %s that was left half done: %w", name, err)
		}
	}
	// What the helper of a namespace that is no more has left in the pod.
	err = inside(ns, func(pod *netlink.Handle) error {
		far, err := linkIfAny(pod, podLink)
		if err != nil || far == nil {
			return err
		}
		if far.Attrs().Alias != want.Sandbox {
			return fmt.Errorf("the pod has a link %s already, which is not ours", podLink)
		}
		return pod.LinkDel(far)
	})
	if err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, want.MTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerNamespace = podLink, uint32(want.MTU), netlink.NsFd(int(ns.Fd()))
	if err := h.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("the link %s: %w", name, err)
	}
	if near, err = h.LinkByName(name); err != nil {
		return nil, fmt.Errorf("the link %s: %w", name, err)
	}
	err = inside(ns, func(pod *netlink.Handle) error {
		far, err := pod.LinkByName(podLink)
		if err != nil {
			return err
		}
		return pod.LinkSetAlias(far, want.Sandbox)
	})
	if err != nil {
		return nil, fmt.Errorf("the pod's link: %w", err)
	}
	if err := h.LinkSetAlias(near, want.Sandbox); err != nil {
		return nil, fmt.Errorf("the link %s: %w", name, err)
	}
	return near, nil
}

// podSide gives the pod its addresses and routes.
func podSide(pod *netlink.Handle, want *wire.Attach) error {
	if err := loopbackUp(); err != nil {
		return err
	}
	link, err := pod.LinkByName(podLink)
	if err != nil {
		return fmt.Errorf("the pod's link: %w", err)
	}
	if slices.ContainsFunc(want.Addresses, netip.Addr.Is6) {
		for _, v := range [][2]string{{"disable_ipv6", "0"}, {"accept_dad", "0"}, {"accept_ra", "0"}} {
			if err := sysctl("ipv6/conf/"+podLink+"/"+v[0], v[1]); err != nil {
				return err
			}
		}
	}
	if err := size(pod, link, want, want.Egress != 0); err != nil {
		return err
	}
	if err := packets(pod, link, want.Inside); err != nil {
		return err
	}
	if err := keepOnly(pod, link, want.Addresses); err != nil {
		return err
	}
	if err := pod.LinkSetUp(link); err != nil {
		return fmt.Errorf("the pod's link: %w", err)
	}
	for _, a := range want.Addresses {
		for _, r := range podRoutes(link.Attrs().Index, a, want) {
			if err := pod.RouteReplace(r); err != nil {
				return fmt.Errorf("the pod's route %s: %w", r.Dst, err)
			}
		}
	}
	return bound(pod, link, want.Egress)
}

// podRoutes returns the routes of a pod for the family of one of its addresses.
func podRoutes(link int, a netip.Addr, want *wire.Attach) []*netlink.Route {
	gateway, all := gateway6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	var routes []*netlink.Route
	if a.Is4() {
		gateway, all = gateway4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		routes = append(routes, &netlink.Route{LinkIndex: link, Dst: ipnet(single(gateway)), Scope: netlink.SCOPE_LINK})
	}
	out := &netlink.Route{LinkIndex: link, Gw: gateway.AsSlice(), Dst: ipnet(all)}
	routes = append(routes, out)
	if want.Inside == nil {
		return routes
	}
	out.MTU = want.MTU
	for _, to := range want.Inside.Ranges {
		if to.Addr().Is4() == a.Is4() {
			routes = append(routes, &netlink.Route{LinkIndex: link, Gw: gateway.AsSlice(), Dst: ipnet(to.Masked())})
		}
	}
	for _, to := range want.Inside.Machine {
		if to.Is4() == a.Is4() {
			routes = append(routes, &netlink.Route{LinkIndex: link, Gw: gateway.AsSlice(), Dst: ipnet(single(to)),
				MTU: want.MTU})
		}
	}
	return routes
}

// keepOnly gives a link these addresses, and takes others away.
func keepOnly(h *netlink.Handle, link netlink.Link, addresses []netip.Addr) error {
	have, err := h.AddrList(link, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("the pod's addresses: %w", err)
	}
	for _, a := range have {
		at, _ := netip.AddrFromSlice(a.IP)
		if at = at.Unmap(); at.IsLinkLocalUnicast() || slices.Contains(addresses, at) {
			continue
		}
		if err := h.AddrDel(link, &a); err != nil {
			return fmt.Errorf("the pod's address %s, which it has no more: %w", at, err)
		}
	}
	for _, a := range addresses {
		if err := h.AddrReplace(link, address(a)); err != nil {
			return fmt.Errorf("the pod's address %s: %w", a, err)
		}
	}
	return nil
}

// nodeSide routes the pod's addresses to its link.
func nodeSide(h *netlink.Handle, near netlink.Link, want *wire.Attach) error {
	name := near.Attrs().Name
	if err := size(h, near, want, want.Ingress != 0); err != nil {
		return err
	}
	// With rules of routing of its own, the namespace would look up a route to the source of each packet, to see that it
	// is not one of its own addresses. The table of rules has looked already, at these links and no others.
	if err := sysctl("ipv4/conf/"+name+"/accept_local", "1"); err != nil {
		return err
	}
	if err := h.LinkSetUp(near); err != nil {
		return fmt.Errorf("the link %s: %w", name, err)
	}
	routes, err := routesTo(h, near)
	if err != nil {
		return err
	}
	for _, a := range want.Addresses {
		if a.Is6() {
			if err := h.AddrReplace(near, address(gateway6)); err != nil {
				return fmt.Errorf("the gateway's address on the link %s: %w", name, err)
			}
		}
		route := &netlink.Route{LinkIndex: near.Attrs().Index, Dst: ipnet(single(a)), Scope: netlink.SCOPE_LINK,
			Protocol: protocol, Src: source(want.PodRanges, a)}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("the route to the pod's address %s: %w", a, err)
		}
	}
	maps.DeleteFunc(routes, func(a netip.Addr, _ netlink.Route) bool { return slices.Contains(want.Addresses, a) })
	for a, route := range routes {
		if err := h.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("the route to the address %s, which the pod has no more: %w", a, err)
		}
	}
	if len(routes) > 0 {
		if err := forgetSources(); err != nil {
			return err
		}
	}
	return bound(h, near, want.Ingress)
}

// routesTo returns our routes through a link, by the address that they lead to.
func routesTo(h *netlink.Handle, link netlink.Link) (map[netip.Addr]netlink.Route, error) {
	routes, err := h.RouteListFiltered(unix.AF_UNSPEC,
		&netlink.Route{LinkIndex: link.Attrs().Index, Protocol: protocol},
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("the routes through the link %s: %w", link.Attrs().Name, err)
	}
	found := make(map[netip.Addr]netlink.Route, len(routes))
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if ones, bits := r.Dst.Mask.Size(); ones == bits {
			a, _ := netip.AddrFromSlice(r.Dst.IP)
			found[a.Unmap()] = r
		}
	}
	return found, nil
}

// detach takes a pod's link away, if there is one.
func detach(sandbox string) error {
	h, err := handle()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := linkIfAny(h, LinkName(sandbox))
	if err != nil || link == nil {
		return err
	}
	// The pod's namespace may be ending at this moment, and take the link with it.
	if err := h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("the link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// attached returns what is connected.
func attached() (map[string]wire.Attached, error) {
	h, err := handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("the links of the node namespace: %w", err)
	}
	found := map[string]wire.Attached{}
	for _, l := range links {
		a := l.Attrs()
		if a.Alias == "" || a.Name != LinkName(a.Alias) {
			continue
		}
		routes, err := routesTo(h, l)
		if err != nil {
			return nil, err
		}
		at := wire.Attached{Link: a.Name}
		for r := range routes {
			at.Addresses = append(at.Addresses, r)
		}
		slices.SortFunc(at.Addresses, netip.Addr.Compare)
		found[a.Alias] = at
	}
	return found, nil
}

// linkIfAny returns the link of a name, or nil if there is none.
func linkIfAny(h *netlink.Handle, name string) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the link %s: %w", name, err)
	}
	return link, nil
}
