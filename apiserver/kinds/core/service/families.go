package service

import (
	"fmt"
	"slices"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// families settles of which families a Service has addresses. It says what is asked of the cluster and cannot be had.
// Live is nil for a new Service.
func (s Services) families(o, live *corev1.Service) error {
	next := o.GetSpec()
	if !addressed(next) || keepsPreference(next, live.GetSpec()) {
		return nil
	}
	if next.IpFamilyPolicy == nil {
		policy := single
		switch {
		case live.GetSpec().GetIpFamilyPolicy() != "":
			policy = live.GetSpec().GetIpFamilyPolicy()
		case next.ClusterIP == None && len(next.Selector) == 0:
			policy = require // whoever makes the endpoints may make them of both
		}
		next.IpFamilyPolicy = &policy
	}
	f := &validation.Faults{}
	for f.Pass() {
		checkAddresses(f, f.Root("spec"), next, specOf(live))
	}
	if f.Count() > 0 {
		return invalid(o, f)
	}
	if live != nil && *next.IpFamilyPolicy == single {
		releaseSecond(next, live.GetSpec())
	}
	f = &validation.Faults{}
	for f.Pass() {
		s.checkPolicy(f, next, live)
	}
	if f.Count() > 0 {
		return invalid(o, f)
	}
	if next.ClusterIP != None {
		for i := len(next.IpFamilies); i < len(next.ClusterIPs); i++ {
			next.IpFamilies = append(next.IpFamilies, familyOf(next.ClusterIPs[i]))
		}
	}
	dual := len(s.ranges.Addresses) == 2
	if next.ClusterIP == None && len(next.Selector) == 0 {
		dual = true
	} else if err := s.available(o); err != nil {
		return err
	}
	if len(next.IpFamilies) == 0 {
		next.IpFamilies = []string{s.family(0)}
	}
	if *next.IpFamilyPolicy != single && len(next.IpFamilies) == 1 && dual {
		next.IpFamilies = append(next.IpFamilies, other(next.IpFamilies[0]))
	}
	return nil
}

// family returns the family of a range of the cluster.
func (s Services) family(i int) string {
	if s.ranges.Addresses[i].Is6() {
		return ipv6
	}
	return ipv4
}

// rangeOf returns which range of the cluster is of a family; -1 for none.
func (s Services) rangeOf(family string) int {
	for i := range s.ranges.Addresses {
		if s.family(i) == family {
			return i
		}
	}
	return -1
}

// has says whether the cluster has addresses of a family.
func (s Services) has(family string) bool { return s.rangeOf(family) >= 0 }

// keepsPreference says whether a Service that prefers two families is updated without touching its addresses. It keeps
// those that it has, though the cluster may have got another family, or lost one.
func keepsPreference(next, live *corev1.ServiceSpec) bool {
	return live != nil && next.GetIpFamilyPolicy() == prefer && next.Type == live.Type &&
		(next.Type == ClusterIP || nodePorts(next)) &&
		(live.IpFamilyPolicy == nil || *live.IpFamilyPolicy == prefer) &&
		slices.Equal(next.ClusterIPs, live.ClusterIPs) && slices.Equal(next.IpFamilies, live.IpFamilies)
}

// releaseSecond takes the second address and family away from a Service that is to have one: what it leaves as it was
// is no wish to keep it.
func releaseSecond(next, live *corev1.ServiceSpec) {
	if len(next.ClusterIPs) > 1 && slices.Equal(next.ClusterIPs, live.ClusterIPs) {
		next.ClusterIPs = next.ClusterIPs[:1]
	}
	if len(next.IpFamilies) > 1 && slices.Equal(next.IpFamilies, live.IpFamilies) {
		next.IpFamilies = next.IpFamilies[:1]
	}
}

// checkPolicy checks whether the policy goes with the addresses and families that are asked for.
func (s Services) checkPolicy(f *validation.Faults, next *corev1.ServiceSpec, live *corev1.Service) {
	p := f.Root("spec").Child("ipFamilyPolicy")
	policy := *next.IpFamilyPolicy
	if policy != single && live != nil {
		if n := len(next.ClusterIPs); n > 0 && n < len(live.GetSpec().GetClusterIPs()) {
			f.Invalid(p, policy, "must be 'SingleStack' to release the secondary cluster IP")
		}
		if n := len(next.IpFamilies); n > 0 && n < len(live.GetSpec().GetIpFamilies()) {
			f.Invalid(p, policy, "must be 'SingleStack' to release the secondary IP family")
		}
	}
	if policy == single {
		const dual = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
		if len(next.ClusterIPs) == 2 {
			f.Invalid(p, policy, fmt.Sprintf(dual, "cluster IPs"))
		}
		if len(next.IpFamilies) == 2 {
			f.Invalid(p, policy, fmt.Sprintf(dual, "IP families"))
		}
	}
	for i, ip := range next.ClusterIPs {
		if ip == None {
			break
		}
		if family := familyOf(ip); i >= len(next.IpFamilies) && !s.has(family) {
			f.InvalidValue(f.Root("spec").Child("clusterIPs").Index(i), next.ClusterIPs,
				family+" is not configured on this cluster")
		}
	}
}

// available refuses families that the cluster has no addresses of.
func (s Services) available(o *corev1.Service) error {
	f := &validation.Faults{}
	for f.Pass() {
		next, p := o.GetSpec(), f.Root("spec")
		if *next.IpFamilyPolicy == require && len(s.ranges.Addresses) < 2 {
			f.Invalid(p.Child("ipFamilyPolicy"), require, "this cluster is not configured for dual-stack services")
		}
		for i, family := range next.IpFamilies {
			if !s.has(family) {
				f.Invalid(p.Child("ipFamilies").Index(i), family, "not configured on this cluster")
			}
		}
	}
	if f.Count() > 0 {
		return invalid(o, f)
	}
	return nil
}

// invalid is the error that refuses a Service.
func invalid(o *corev1.Service, f *validation.Faults) error {
	return apierrors.NewInvalid(corev1.ServiceKind, o.GetMetadata().GetName(), f.Causes())
}
