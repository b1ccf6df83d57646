package helper

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

const (
	// handleOfBound tells our queueing discipline from the link's own.
	handleOfBound = 0x6d70
	// burstTime is how much may be sent at once after a pause: what the bound allows in a tenth of a second.
	burstTime = 10
	// usualSegment is the most of a connection that the kernel hands on in one piece where nobody says otherwise.
	usualSegment = 64 << 10
	// usualPackets is how many packets the kernel hands on in one piece where nobody says otherwise: GSO_MAX_SEGS.
	usualPackets = math.MaxUint16
	// leastBurst is more than the largest packet over a link with a bound.
	leastBurst = 2 * usualSegment
	// queueTime is how long a packet may wait: a quarter of a second's worth of packets does.
	queueTime = 4
)

// Segment lets TCP hand pieces of up to size bytes to a link, as far as the link can take them (IPv4 alone, from Linux
// 6.3 on; other kernels change nothing). Between two pods a piece is handed on whole, so that all the work that is
// done for each (routes, rules, connection tracking) is done less often. A link with a bound on its bandwidth keeps
// to the usual size, which the bound is made for.
func Segment(h *netlink.Handle, link netlink.Link, size int, bounded bool) error {
	at := link.Attrs()
	if at.GSOIPv4MaxSize == 0 {
		return nil
	}
	want := uint32(usualSegment)
	if !bounded {
		want = max(want, uint32(min(max(size, 0), int(at.TSOMaxSize))))
	}
	if want == at.GSOIPv4MaxSize {
		return nil
	}
	if err := h.LinkSetGSOIPv4MaxSize(link, int(want)); err != nil {
		return fmt.Errorf("segments of %d bytes on the link %s: %w", want, at.Name, err)
	}
	return nil
}

// size has one end of a pod's link take packets and pieces as large as they can be between pods.
func size(h *netlink.Handle, link netlink.Link, want *wire.Attach, bounded bool) error {
	mtu, segment := want.MTU, want.Segment
	if want.Inside != nil {
		mtu, segment = want.Inside.MTU, want.Inside.Segment
	}
	if err := h.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("the MTU %d of the pod's link %s: %w", mtu, link.Attrs().Name, err)
	}
	return Segment(h, link, segment, bounded)
}

// packets bounds how many packets TCP hands to the pod's end of its link in one piece.
func packets(pod *netlink.Handle, link netlink.Link, in *wire.Inside) error {
	most := uint32(usualPackets)
	if in != nil {
		most = uint32(min(max(in.Packets, 1), usualPackets))
	}
	if at := link.Attrs(); at.GSOMaxSegs == most || at.GSOMaxSegs == 0 {
		return nil
	}
	if err := pod.LinkSetGSOMaxSegs(link, int(most)); err != nil {
		return fmt.Errorf("pieces of %d packets on the link %s: %w", most, link.Attrs().Name, err)
	}
	return nil
}

// bound limits what is sent over a link to a number of bits a second; 0 takes the bound away.
func bound(h *netlink.Handle, link netlink.Link, bits uint64) error {
	root := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(handleOfBound, 0),
		Parent: netlink.HANDLE_ROOT}
	have, err := h.QdiscList(link)
	if err != nil {
		return fmt.Errorf("the bandwidth of the link %s: %w", link.Attrs().Name, err)
	}
	bounded := false
	for _, q := range have {
		bounded = bounded || q.Attrs().Handle == root.Handle
	}
	if bits == 0 {
		if !bounded {
			return nil
		}
		err := h.QdiscDel(&netlink.Tbf{QdiscAttrs: root})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("the bandwidth of the link %s: %w", link.Attrs().Name, err)
		}
		return nil
	}
	rate := max(bits/8, 1)
	burst := min(max(rate/burstTime, leastBurst), math.MaxUint32/2)
	limit := min(burst+rate/queueTime, math.MaxUint32)
	// The kernel takes the burst as the time that it takes at this rate, in ticks of its own.
	tbf := &netlink.Tbf{QdiscAttrs: root, Rate: rate, Limit: uint32(limit),
		Buffer: uint32(min(uint64(netlink.Xmittime(rate, uint32(burst))), math.MaxUint32))}
	if err := h.QdiscReplace(tbf); err != nil {
		return fmt.Errorf("the bandwidth of the link %s, %d bits a second: %w", link.Attrs().Name, bits, err)
	}
	return nil
}
