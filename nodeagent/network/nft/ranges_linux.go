package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// Range is a range of addresses of one family, with both of its ends.
type Range struct{ First, Last netip.Addr }

// RangeOf returns the addresses of a prefix.
func RangeOf(p netip.Prefix) Range {
	p = p.Masked()
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return Range{First: p.Addr(), Last: last}
}

// Ranges returns the addresses of prefixes.
func Ranges(prefixes []netip.Prefix) []Range {
	out := make([]Range, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, RangeOf(p))
	}
	return out
}

// Without returns what is left of the range without another.
func (r Range) Without(o Range) []Range {
	if r.First.Is6() != o.First.Is6() || o.Last.Less(r.First) || r.Last.Less(o.First) {
		return []Range{r}
	}
	var out []Range
	if r.First.Less(o.First) {
		out = append(out, Range{r.First, o.First.Prev()})
	}
	if o.Last.Less(r.Last) {
		out = append(out, Range{o.Last.Next(), r.Last})
	}
	return out
}

// Intervals returns the elements of a set of a family's ranges: the first address of each, and the first one behind
// it. Ranges that overlap or touch become one, as the kernel wants them.
func Intervals(ranges []Range, v6 bool) []nftables.SetElement {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b Range) int { return a.First.Compare(b.First) })
	var out []nftables.SetElement
	var now Range
	flush := func() {
		if !now.First.IsValid() {
			return
		}
		out = append(out, nftables.SetElement{Key: now.First.AsSlice()})
		if next := now.Last.Next(); next.IsValid() {
			out = append(out, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	for _, r := range ranges {
		if r.First.Is6() != v6 {
			continue
		}
		switch {
		case now.First.IsValid() && (r.First.Compare(now.Last) <= 0 || now.Last.Next() == r.First):
			if now.Last.Less(r.Last) {
				now.Last = r.Last
			}
		default:
			flush()
			now = r
		}
	}
	flush()
	return out
}

// SameIntervals compares sets of ranges. The kernel adds an end at address 0 where a set does not begin with it.
func SameIntervals(a, b []nftables.SetElement) bool {
	keys := func(in []nftables.SetElement) []string {
		var out []string
		for _, e := range in {
			if e.IntervalEnd && !slices.ContainsFunc(e.Key, func(c byte) bool { return c != 0 }) {
				continue
			}
			out = append(out, fmt.Sprintf("%x %v", e.Key, e.IntervalEnd))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(keys(a), keys(b))
}
