package podspec

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	maxNameservers   = 3
	maxSearches      = 32
	maxSearchesChars = 2048
	dnsNone          = "None"
)

// dns checks the resolver configuration of a pod (LIFE-8).
func (v *Checker) dns(p *validation.Path) {
	policy, c := v.spec.GetDnsPolicy(), v.spec.GetDnsConfig()
	v.RequiredOneOf(p.Child("dnsPolicy"), policy, "ClusterFirstWithHostNet", "ClusterFirst", "Default", dnsNone)
	at := p.Child("dnsConfig")
	if policy == dnsNone {
		switch {
		case c == nil:
			v.Required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
		case len(c.GetNameservers()) == 0:
			v.Required(at.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
		}
	}
	v.nameservers(at.Child("nameservers"), c.GetNameservers())
	v.searches(at.Child("searches"), c.GetSearches())
	for i, o := range c.GetOptions() {
		if o.GetName() == "" {
			v.Required(at.Child("options").Index(i), "must not be empty")
		}
	}
}

func (f *faults) nameservers(p *validation.Path, list []string) {
	if len(list) > maxNameservers {
		f.InvalidValue(p, list, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, ip := range list {
		f.IP(p.Index(i), ip)
	}
}

func (f *faults) searches(p *validation.Path, list []string) {
	if len(list) > maxSearches {
		f.InvalidValue(p, list, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	chars := len(list) - 1
	for _, s := range list {
		chars += len(s)
	}
	if chars > maxSearchesChars {
		f.InvalidValue(p, list,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchesChars))
	}
	for i, s := range list {
		if s != "." {
			s = strings.TrimSuffix(s, ".")
			f.Invalid(p.Index(i), s, utilvalidation.IsDNS1123SubdomainWithUnderscore(s)...)
		}
	}
}

func (f *faults) hostAliases(p *validation.Path, list []*corev1.HostAlias) {
	for i, a := range list {
		f.IP(p.Index(i).Child("ip"), a.GetIp())
		for j, name := range a.GetHostnames() {
			f.Subdomain(p.Index(i).Child("hostnames").Index(j), name)
		}
	}
}
