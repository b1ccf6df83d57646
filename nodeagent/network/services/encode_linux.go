package services

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// protocolNumbers are those of the protocols that Services have.
func protocolNumber(name string) (byte, bool) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	case "sctp":
		return unix.IPPROTO_SCTP, true
	default:
		return 0, false
	}
}

func protocolName(number byte) string {
	for _, name := range []string{"tcp", "udp", "sctp"} {
		if n, _ := protocolNumber(name); n == number {
			return name
		}
	}
	return ""
}

// backendBytes returns an address and a port as maps hold them: each padded to 4 bytes.
func backendBytes(b netip.AddrPort) []byte {
	return append(b.Addr().AsSlice(), portBytes(b.Port())...)
}

func portBytes(port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, port), 0, 0)
}

// key returns an entry's key in its map; ok is false for a protocol that there is not.
func (e Entry) key() (key []byte, ok bool) {
	n, ok := protocolNumber(e.Protocol)
	key = []byte{n, 0, 0, 0}
	if e.Addr.IsValid() {
		key = append(key, e.Addr.AsSlice()...)
	}
	return append(key, portBytes(e.Port)...), ok
}

// entryOf reads a key of a map.
func entryOf(key []byte, v6, nodePort bool) (Entry, bool) {
	size := 4 * int(width(v6))
	if nodePort {
		size = 0
	}
	if len(key) != 8+size {
		return Entry{}, false
	}
	e := Entry{Protocol: protocolName(key[0]), V6: v6, Port: binary.BigEndian.Uint16(key[4+size:])}
	if !nodePort {
		e.Addr, _ = netip.AddrFromSlice(key[4 : 4+size])
	}
	return e, e.Protocol != ""
}

// intervals returns the elements of a set of ranges: the first address of each, and the first one behind it. Ranges
// that overlap or touch become one, as the kernel wants them.
func intervals(ranges []netip.Prefix, v6 bool) []nftables.SetElement {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	var out []nftables.SetElement
	var first, last netip.Addr
	flush := func() {
		if !first.IsValid() {
			return
		}
		out = append(out, nftables.SetElement{Key: first.AsSlice()})
		if next := last.Next(); next.IsValid() {
			out = append(out, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	for _, r := range ranges {
		if r.Addr().Is6() != v6 {
			continue
		}
		switch end := lastOf(r); {
		case first.IsValid() && r.Addr().Compare(last) <= 0:
			if last.Less(end) {
				last = end
			}
		case first.IsValid() && last.Next() == r.Addr():
			last = end
		default:
			flush()
			first, last = r.Addr(), end
		}
	}
	flush()
	return out
}

// lastOf returns the last address of a range.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
