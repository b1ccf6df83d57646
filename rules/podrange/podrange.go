// Package podrange is where the addresses of pods come from: the ranges of the cluster, and how they are divided among
// nodes. Which parts are taken already is for the caller to say.
//
// Ranges are values that never change.
package podrange

import (
	"fmt"
	"math/big"
	"net/netip"
	"strings"
)

// Defaults, which are Kubernetes' (kubeadm's, and those of its controller manager).
const (
	Default      = "10.244.0.0/16"
	DefaultMask4 = 24
	DefaultMask6 = 64
)

// mostParts bounds how finely a range may be divided, as a power of two.
const mostParts = 16

// Cluster is a range of a cluster, of one family.
type Cluster struct {
	prefix netip.Prefix
	mask   int
}

// Parse reads one range, or two of different families separated by a comma, such as "10.244.0.0/16,fd00:244::/56".
// Nodes have parts of mask4 and mask6 bits; 0 for the defaults. No range may overlap one of those of Services.
func Parse(text string, mask4, mask6 int, services []netip.Prefix) ([]Cluster, error) {
	var all []Cluster
	for _, part := range strings.Split(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is no range of addresses, such as %s", part, Default)
		}
		c := Cluster{prefix: prefix, mask: mask4}
		if prefix.Addr().Is6() {
			c.mask = mask6
		}
		if c.mask == 0 && prefix.Addr().Is6() {
			c.mask = DefaultMask6
		} else if c.mask == 0 {
			c.mask = DefaultMask4
		}
		if err := c.check(); err != nil {
			return nil, err
		}
		for _, s := range services {
			if s.Overlaps(prefix) {
				return nil, fmt.Errorf("the range %s of pods and the range %s of Services overlap", prefix, s)
			}
		}
		all = append(all, c)
	}
	switch {
	case len(all) > 2:
		return nil, fmt.Errorf("%q are %d ranges; there can be one of each family", text, len(all))
	case len(all) == 2 && all[0].prefix.Addr().Is4() == all[1].prefix.Addr().Is4():
		return nil, fmt.Errorf("%q are two ranges of one family; there can be one of each", text)
	}
	return all, nil
}

func (c Cluster) check() error {
	p := c.prefix
	switch {
	case p.Addr().Is4In6():
		return fmt.Errorf("%s is an IPv4 range written as IPv6", p)
	case p != p.Masked():
		return fmt.Errorf("%s has bits set beyond its length; the range is %s", p, p.Masked())
	case c.mask < p.Bits():
		return fmt.Errorf("%s is smaller than what a node has of it, which is /%d", p, c.mask)
	case c.mask-p.Bits() > mostParts:
		return fmt.Errorf("%s has too many parts of /%d for nodes: it can be divided into 2^%d", p, c.mask, mostParts)
	case p.Addr().BitLen()-c.mask < 3:
		return fmt.Errorf("/%d is too small for the pods of a node; the smallest is /%d", c.mask, p.Addr().BitLen()-3)
	}
	return nil
}

// Prefix returns the whole range.
func (c Cluster) Prefix() netip.Prefix { return c.prefix }

// Parts returns into how many parts the range is divided.
func (c Cluster) Parts() int { return 1 << (c.mask - c.prefix.Bits()) }

// Part returns the part of a number from 0 to below Parts.
func (c Cluster) Part(n int) netip.Prefix {
	at := new(big.Int).SetBytes(c.prefix.Addr().AsSlice())
	at.Add(at, new(big.Int).Lsh(big.NewInt(int64(n)), uint(c.prefix.Addr().BitLen()-c.mask)))
	a, _ := netip.AddrFromSlice(at.FillBytes(make([]byte, c.prefix.Addr().BitLen()/8)))
	return netip.PrefixFrom(a, c.mask)
}

// Free returns the first part that overlaps none of those that are taken; false if there is none.
func (c Cluster) Free(taken []netip.Prefix) (netip.Prefix, bool) {
	used := make(map[netip.Prefix]bool, len(taken))
	var other []netip.Prefix // Of another size, of which there are few: the division was changed.
	for _, p := range taken {
		if p.Bits() == c.mask {
			used[p.Masked()] = true
		} else if p.Overlaps(c.prefix) {
			other = append(other, p)
		}
	}
next:
	for n := range c.Parts() {
		part := c.Part(n)
		if used[part] {
			continue
		}
		for _, p := range other {
			if p.Overlaps(part) {
				continue next
			}
		}
		return part, true
	}
	return netip.Prefix{}, false
}
