// Package servicerange is where the addresses and node ports of Services come from: which ones there are, and which
// one is given out next. What is taken already is for the caller to say.
//
// The lower end of a range is for those who ask for an address or a port of their choice: what is given out unasked
// comes from there only when all else is taken. How much that is depends on the size of the range, as in Kubernetes.
//
// Ranges are values that never change.
package servicerange

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strings"
)

// DefaultAddresses is the range of cluster IPs where none is given.
const DefaultAddresses = "10.96.0.0/16"

// The largest ranges: what is not taken is found by trying one after another.
const (
	shortest4 = 12
	shortest6 = 64
	// spare is how many bits of an address must be free at least, for eight of them.
	spare = 3
)

// Addresses is a range of cluster IPs of one family. The first address, and for IPv4 the last, are never given out:
// they name the network itself, and everybody in it.
type Addresses struct {
	prefix      netip.Prefix
	first, last netip.Addr
	// size is how many there are from first to last, lower how many of them are for those who choose.
	size, lower uint64
}

// ParseAddresses reads one range, or two of different families separated by a comma, such as
// "10.96.0.0/16,fd00:10:96::/108". Services have an address of the first unless they ask for more.
func ParseAddresses(text string) ([]Addresses, error) {
	var out []Addresses
	for _, part := range strings.Split(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is no range of addresses, such as %s", part, DefaultAddresses)
		}
		a, err := NewAddresses(prefix)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	switch {
	case len(out) > 2:
		return nil, fmt.Errorf("%q are %d ranges; there can be one of each family", text, len(out))
	case len(out) == 2 && out[0].Is6() == out[1].Is6():
		return nil, fmt.Errorf("%q are two ranges of one family; there can be one of each", text)
	}
	return out, nil
}

// NewAddresses returns the addresses of a network.
func NewAddresses(prefix netip.Prefix) (Addresses, error) {
	shortest := shortest4
	if prefix.Addr().Is6() {
		shortest = shortest6
	}
	bits := prefix.Addr().BitLen()
	switch {
	case prefix.Addr().Is4In6():
		return Addresses{}, fmt.Errorf("%s is an IPv4 range written as IPv6", prefix)
	case prefix != prefix.Masked():
		return Addresses{}, fmt.Errorf("%s has bits set beyond its length; the range is %s", prefix, prefix.Masked())
	case prefix.Bits() < shortest || prefix.Bits() > bits-spare:
		return Addresses{}, fmt.Errorf("%s has the wrong size: its length must be from %d to %d",
			prefix, shortest, bits-spare)
	}
	a := Addresses{prefix: prefix, first: prefix.Addr().Next()}
	host := uint(bits - prefix.Bits())
	all := uint64(math.MaxUint64)
	if host < 64 {
		all = 1 << host
	}
	a.size = all - 1
	if prefix.Addr().Is4() {
		a.size--
	}
	a.last = a.at(a.size - 1)
	a.lower = band(all, 16, 256)
	return a, nil
}

// band is how much of a range of so many is for those who choose: a part of it, but at least 16 and at most most, and
// nothing of a range that is no larger than that.
func band(all, part, most uint64) uint64 {
	const least = 16
	if all <= least {
		return 0
	}
	return min(max(least, all/part), most)
}

// String returns the range as it is written.
func (a Addresses) String() string { return a.prefix.String() }

// Prefix returns the network.
func (a Addresses) Prefix() netip.Prefix { return a.prefix }

// Is6 says whether the range is of IPv6.
func (a Addresses) Is6() bool { return a.prefix.Addr().Is6() }

// First is the lowest address, which is that of the API server.
func (a Addresses) First() netip.Addr { return a.first }

// Contains says whether a Service can have the address.
func (a Addresses) Contains(addr netip.Addr) bool {
	return a.prefix.Contains(addr) && !addr.Less(a.first) && !a.last.Less(addr)
}

// Pick returns an address that is not taken; ok is false when all are. random returns a number below n, which is where
// the search begins: two servers that choose at the same time seldom choose the same.
func (a Addresses) Pick(random func(n uint64) uint64, taken func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	if addr, ok = a.pick(a.lower, a.size-a.lower, random, taken); ok {
		return addr, true
	}
	return a.pick(0, a.lower, random, taken)
}

// pick chooses among n addresses, of which the lowest is the one at position from.
func (a Addresses) pick(
	from, n uint64, random func(n uint64) uint64, taken func(netip.Addr) bool,
) (addr netip.Addr, ok bool) {
	if n == 0 {
		return netip.Addr{}, false
	}
	begin := random(n)
	addr = a.at(from + begin)
	for i := range n {
		if begin+i == n {
			addr = a.at(from)
		}
		if !taken(addr) {
			return addr, true
		}
		addr = addr.Next()
	}
	return netip.Addr{}, false
}

// at returns the address at a position, from 0.
func (a Addresses) at(n uint64) netip.Addr {
	sum := new(big.Int).SetBytes(a.first.AsSlice())
	sum.Add(sum, new(big.Int).SetUint64(n))
	addr, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, a.prefix.Addr().BitLen()/8)))
	return addr
}
