package hostinfo

import (
	"errors"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// allAddresses returns the addresses of links that are up, but for those that do not last.
func allAddresses() []address {
	links, err := again(net.Interfaces)
	if err != nil {
		return nil
	}
	four, six := defaultLink(unix.AF_INET), defaultLink(unix.AF_INET6)
	list, err := again(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil
	}
	up := map[int]string{}
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			up[l.Index] = l.Name
		}
	}
	var out []address
	for _, a := range list {
		const passing = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_DADFAILED
		// The flag of temporary addresses of IPv6 is that of secondary ones of IPv4, which last.
		if name, ok := up[a.LinkIndex]; ok && (a.IP.To4() != nil || a.Flags&passing == 0) {
			main := six
			if a.IP.To4() != nil {
				main = four
			}
			out = append(out, address{link: name, ip: a.IP, main: a.LinkIndex == main})
		}
	}
	return out
}

// defaultLink returns the link of the default route of a family with the least metric; 0 if there is none.
func defaultLink(family int) int {
	routes, _ := again(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) }) // of the main table
	link, metric := 0, 0
	for _, r := range routes {
		everywhere := r.Dst == nil
		if !everywhere {
			ones, _ := r.Dst.Mask.Size()
			everywhere = ones == 0
		}
		index := r.LinkIndex
		if index == 0 && len(r.MultiPath) > 0 {
			index = r.MultiPath[0].LinkIndex
		}
		if everywhere && index != 0 && r.Type == unix.RTN_UNICAST && (link == 0 || r.Priority < metric) {
			link, metric = index, r.Priority
		}
	}
	return link
}

// again asks the kernel once more for a list that has changed while it was read.
func again[T any](list func() ([]T, error)) (all []T, err error) {
	for range 5 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return all, err
}
