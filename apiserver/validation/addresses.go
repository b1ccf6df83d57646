package validation

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"
)

// IP checks an address. Forms that some programs read in another way are refused.
func (f *Faults) IP(p *Path, text string) {
	if utilnet.ParseIPSloppy(text) == nil {
		f.Invalid(p, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
		return
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		f.Invalid(p, text, "must not have leading 0s")
	}
	if addr.Is4In6() {
		f.Invalid(p, text, "must not be an IPv4-mapped IPv6 address")
	}
}

// CanonicalIP checks an address that must be written as programs write it.
func (f *Faults) CanonicalIP(p *Path, text string) {
	for _, e := range validation.IsValidIP(nil, text) {
		f.Add(p, e)
	}
}

// EndpointIP refuses an address that no endpoint can have: it means something else on each machine.
func (f *Faults) EndpointIP(p *Path, text string) { f.endpointIP(p, text, false) }

// ServerIP is EndpointIP for the endpoints of the API server, which may listen on the loopback alone: there the
// programs of its own machine find it.
func (f *Faults) ServerIP(p *Path, text string) { f.endpointIP(p, text, true) }

func (f *Faults) endpointIP(p *Path, text string, loopback bool) {
	ip := utilnet.ParseIPSloppy(text)
	switch {
	case ip == nil:
		f.Invalid(p, text, "must be a valid IP address")
	case ip.IsUnspecified():
		f.Invalid(p, text, "may not be unspecified ("+Shorten(text)+")")
	case ip.IsLoopback() && loopback:
	case ip.IsLoopback():
		f.Invalid(p, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	case ip.IsLinkLocalUnicast():
		f.Invalid(p, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	case ip.IsLinkLocalMulticast():
		f.Invalid(p, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// IPs checks a list of addresses, at most one of each family; those in old are tolerated.
func (f *Faults) IPs(p *Path, list, old []string) {
	known := make(map[string]bool, len(old))
	for _, ip := range old {
		known[ip] = true
	}
	v4, v6 := 0, 0
	for i, ip := range list {
		if !known[ip] {
			f.IP(p.Index(i), ip)
		}
		if utilnet.IsIPv6(utilnet.ParseIPSloppy(ip)) {
			v6++
		} else {
			v4++
		}
	}
	if v4 > 1 || v6 > 1 {
		f.InvalidValue(p, list, "may specify no more than one IP for each IP family")
	}
}

// CIDRs checks a list of address ranges, at most one of each family.
func (f *Faults) CIDRs(p *Path, list []string) {
	v4, v6 := 0, 0
	for i, text := range list {
		for _, e := range validation.IsValidCIDRForLegacyField(nil, text, true, nil) {
			f.Add(p.Index(i), e)
		}
		if utilnet.IsIPv6CIDRString(text) {
			v6++
		} else {
			v4++
		}
	}
	if v4 > 1 || v6 > 1 {
		f.InvalidValue(p, list, "may specify no more than one CIDR for each IP family")
	}
}
