package validation

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	maxNameservers   = 3
	maxSearches      = 32
	maxSearchesChars = 2048
	dnsNone          = "None"
)

// dns checks the resolver configuration of a pod (LIFE-8).
func (v *pod) dns(p *fieldPath) {
	policy, c := v.spec.GetDnsPolicy(), v.spec.GetDnsConfig()
	v.requiredOneOf(p.Child("dnsPolicy"), policy, "ClusterFirstWithHostNet", "ClusterFirst", "Default", dnsNone)
	at := p.Child("dnsConfig")
	if policy == dnsNone {
		switch {
		case c == nil:
			v.required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
		case len(c.GetNameservers()) == 0:
			v.required(at.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
		}
	}
	v.nameservers(at.Child("nameservers"), c.GetNameservers())
	v.searches(at.Child("searches"), c.GetSearches())
	for i, o := range c.GetOptions() {
		if o.GetName() == "" {
			v.required(at.Child("options").Index(i), "must not be empty")
		}
	}
}

func (f *faults) nameservers(p *fieldPath, list []string) {
	if len(list) > maxNameservers {
		f.invalidValue(p, list, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, ip := range list {
		f.ip(p.Index(i), ip)
	}
}

func (f *faults) searches(p *fieldPath, list []string) {
	if len(list) > maxSearches {
		f.invalidValue(p, list, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	chars := len(list) - 1
	for _, s := range list {
		chars += len(s)
	}
	if chars > maxSearchesChars {
		f.invalidValue(p, list,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchesChars))
	}
	for i, s := range list {
		if s != "." {
			s = strings.TrimSuffix(s, ".")
			f.invalid(p.Index(i), s, validation.IsDNS1123SubdomainWithUnderscore(s)...)
		}
	}
}

func (f *faults) hostAliases(p *fieldPath, list []*corev1.HostAlias) {
	for i, a := range list {
		f.ip(p.Index(i).Child("ip"), a.GetIp())
		for j, name := range a.GetHostnames() {
			f.subdomain(p.Index(i).Child("hostnames").Index(j), name)
		}
	}
}

// ip checks an address. Forms that some programs read in another way are refused.
func (f *faults) ip(p *fieldPath, text string) {
	if utilnet.ParseIPSloppy(text) == nil {
		f.invalid(p, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
		return
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		f.invalid(p, text, "must not have leading 0s")
	}
	if addr.Is4In6() {
		f.invalid(p, text, "must not be an IPv4-mapped IPv6 address")
	}
}

// ips checks a list of addresses, at most one of each family; those in old are tolerated.
func (f *faults) ips(p *fieldPath, list, old []string) {
	known := make(map[string]bool, len(old))
	for _, ip := range old {
		known[ip] = true
	}
	v4, v6 := 0, 0
	for i, ip := range list {
		if !known[ip] {
			f.ip(p.Index(i), ip)
		}
		if utilnet.IsIPv6(utilnet.ParseIPSloppy(ip)) {
			v6++
		} else {
			v4++
		}
	}
	if v4 > 1 || v6 > 1 {
		f.invalidValue(p, list, "may specify no more than one IP for each IP family")
	}
}

// cidrs checks a list of address ranges, at most one of each family.
func (f *faults) cidrs(p *fieldPath, list []string) {
	v4, v6 := 0, 0
	for i, text := range list {
		for _, e := range validation.IsValidCIDRForLegacyField(nil, text, true, nil) {
			f.add(p.Index(i), e)
		}
		if utilnet.IsIPv6CIDRString(text) {
			v6++
		} else {
			v4++
		}
	}
	if v4 > 1 || v6 > 1 {
		f.invalidValue(p, list, "may specify no more than one CIDR for each IP family")
	}
}
