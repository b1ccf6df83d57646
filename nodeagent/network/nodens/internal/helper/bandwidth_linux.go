package helper

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// handleOfBound tells our queueing discipline from the link's own.
	handleOfBound = 0x6d70
	// burstTime is how much may be sent at once after a pause: what the bound allows in a tenth of a second.
	burstTime = 10
	// leastBurst is more than the largest packet that the kernel hands on undivided, 64 KiB.
	leastBurst = 128 << 10
	// queueTime is how long a packet may wait: a quarter of a second's worth of packets does.
	queueTime = 4
)

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
