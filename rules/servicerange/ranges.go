package servicerange

import "net/netip"

// Ranges is what addresses and ports are given out from. Servers of one etcd should have the same.
type Ranges struct {
	// Addresses are one or two ranges, of different families; without any DefaultAddresses.
	Addresses []Addresses
	// Ports are the node ports; DefaultPorts when zero.
	Ports Ports
}

// Complete fills in what is optional.
func (r Ranges) Complete() Ranges {
	// The defaults are constants that can be read, which a test shows.
	if len(r.Addresses) == 0 {
		r.Addresses, _ = ParseAddresses(DefaultAddresses)
	}
	if r.Ports == (Ports{}) {
		r.Ports, _ = ParsePorts(DefaultPorts)
	}
	return r
}

// Prefixes returns the ranges of addresses.
func (r Ranges) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range r.Addresses {
		out = append(out, a.Prefix())
	}
	return out
}

// API returns the address of the Service "kubernetes", the first that there is; not valid without ranges.
func (r Ranges) API() netip.Addr { return r.number(1) }

// DNS returns the address of the Service "kube-dns", the tenth, as kubeadm has it; not valid in a range without one.
func (r Ranges) DNS() netip.Addr { return r.number(10) }

func (r Ranges) number(n int) netip.Addr {
	if len(r.Addresses) == 0 {
		return netip.Addr{}
	}
	within := r.Addresses[0].Prefix()
	at := within.Addr()
	for range n {
		at = at.Next()
	}
	if !within.Contains(at) {
		return netip.Addr{}
	}
	return at
}
