package service

import (
	"fmt"
	"slices"

	utilnet "k8s.io/utils/net"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// The families of addresses.
const (
	ipv4 = "IPv4"
	ipv6 = "IPv6"
)

// The policies of how many families a Service has.
const (
	single  = "SingleStack"
	prefer  = "PreferDualStack"
	require = "RequireDualStack"
)

// familyOf returns the family of an address that was checked.
func familyOf(ip string) string {
	if utilnet.IsIPv6String(ip) {
		return ipv6
	}
	return ipv4
}

// other returns the other family.
func other(family string) string {
	if family == ipv4 {
		return ipv6
	}
	return ipv4
}

// checkAddresses checks how clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy go together.
func checkAddresses(f *validation.Faults, p *validation.Path, s, old *corev1.ServiceSpec) {
	if !addressed(s) {
		return
	}
	list, ips := s.GetClusterIPs(), p.Child("clusterIPs")
	switch first := s.GetClusterIP(); {
	case first != "" && len(list) == 0:
		f.Required(ips, "")
	case first != "" && list[0] != first:
		f.InvalidValue(ips, list, "first value must match `clusterIP`")
	case first == "" && len(list) > 0:
		f.InvalidValue(ips, list, "must be empty when `clusterIP` is not specified")
	}
	for i, family := range s.GetIpFamilies() {
		at := p.Child("ipFamilies").Index(i)
		f.OneOf(at, family, ipv4, ipv6)
		if slices.Contains(s.GetIpFamilies()[:i], family) {
			f.Duplicate(at, family)
		}
	}
	if s.IpFamilyPolicy != nil {
		f.OneOf(p.Child("ipFamilyPolicy"), *s.IpFamilyPolicy, prefer, require, single)
	}
	wrong := false
	for i, ip := range list {
		if i == 0 && ip == None {
			if wrong = len(list) > 1; wrong {
				f.InvalidValue(ips, list, "'None' must be the first and only value")
			}
			continue
		}
		if !slices.Contains(old.GetClusterIPs(), ip) {
			before := f.Count()
			f.IP(ips.Index(i), ip)
			wrong = wrong || f.Count() > before
		}
	}
	if len(list) > 2 {
		f.InvalidValue(ips, list, "may only hold up to 2 values")
	}
	if wrong || headless(s) {
		return
	}
	if dual, err := utilnet.IsDualStackIPStrings(list); len(list) > 1 && (err != nil || !dual) {
		f.InvalidValue(ips, list, "may specify no more than one IP for each IP family")
	}
	for i, ip := range list {
		if i == len(s.GetIpFamilies()) {
			break
		}
		if is := s.GetIpFamilies()[i]; (is == ipv4 || is == ipv6) && is != familyOf(ip) {
			f.Invalid(ips.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", is, i))
		}
	}
}

const (
	once     = "may not change once set"
	released = "must be set to 'SingleStack' when releasing the secondary "
)

// checkAddressesKept refuses to change an address: a second one comes and goes, as ipFamilyPolicy says.
func checkAddressesKept(f *validation.Faults, new, old *corev1.ServiceSpec) {
	if !addressed(new) || !addressed(old) || headless(new) && headless(old) {
		return
	}
	p := f.Root("spec").Child("clusterIPs")
	now, was := new.GetClusterIPs(), old.GetClusterIPs()
	if len(now) == len(was) {
		for i := range was {
			if now[i] != was[i] {
				f.InvalidValue(p.Index(i), now, once)
			}
		}
		return
	}
	switch {
	case len(was) > 0 && len(now) == 0:
		f.InvalidValue(p.Index(0), now, "primary clusterIP can not be unset")
	case len(was) > 0 && now[0] != was[0]:
		f.InvalidValue(p.Index(0), now, once)
	}
	if len(now) == 1 && len(was) > 1 && new.GetIpFamilyPolicy() != single {
		f.InvalidValue(f.Root("spec").Child("ipFamilyPolicy"), textOf(new.IpFamilyPolicy), released+"clusterIP")
	}
}

// checkFamiliesKept refuses to change the family of an address. Headless Services have none.
func checkFamiliesKept(f *validation.Faults, new, old *corev1.ServiceSpec) {
	if !addressed(new) || !addressed(old) || headless(new) || headless(old) {
		return
	}
	p := f.Root("spec").Child("ipFamilies").Index(0)
	now, was := new.GetIpFamilies(), old.GetIpFamilies()
	if len(now) == len(was) {
		for i := range was {
			if now[i] != was[i] {
				f.InvalidValue(p, now, once)
			}
		}
		return
	}
	if len(was) > len(now) && len(new.GetClusterIPs()) == 0 {
		f.InvalidValue(p, now, "primary ipFamily can not be unset")
	}
	if len(now) > 0 && len(was) > 0 && now[0] != was[0] {
		f.InvalidValue(p, new.GetClusterIPs(), once)
	}
	if len(now) == 1 && len(was) > 1 && new.GetIpFamilyPolicy() != single {
		f.InvalidValue(f.Root("spec").Child("ipFamilyPolicy"), textOf(new.IpFamilyPolicy), released+"ipFamily")
	}
}
