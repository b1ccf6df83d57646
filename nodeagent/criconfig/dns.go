package criconfig

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/resolvconf"
)

// Bounds of what resolvers understand.
const (
	maxServers      = 3
	maxSearches     = 32
	maxSearchText   = 2048
	maxSearchDomain = 253
)

// DNS returns how the pod resolves names, and what of that had to be left out, in sentences. There is no cluster DNS:
// every policy but "None" begins with the node's resolver; dnsConfig adds to it. spec: LIFE-8
func DNS(p *corev1.Pod, f Facts) (config *runtimeapi.DNSConfig, left []string) {
	config = &runtimeapi.DNSConfig{}
	if p.GetSpec().GetDnsPolicy() != "None" {
		r := f.Resolver
		config.Servers, config.Searches, config.Options = r.Servers, r.Searches, r.Options
	}
	if own := p.GetSpec().GetDnsConfig(); own != nil {
		config.Servers = unique(config.Servers, own.GetNameservers())
		config.Searches = unique(config.Searches, own.GetSearches())
		config.Options = slices.Clone(config.Options)
		for _, o := range own.GetOptions() {
			text := o.GetName()
			if o.GetValue() != "" {
				text += ":" + o.GetValue()
			}
			config.Options = resolvconf.SetOption(config.Options, text)
		}
	}
	if len(config.Servers) > maxServers {
		config.Servers = config.Servers[:maxServers]
		left = append(left, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver "+
			"line is: "+strings.Join(config.Servers, " "))
	}
	if fit := fitting(config.Searches); len(fit) < len(config.Searches) {
		config.Searches = fit
		left = append(left, "Search Line limits were exceeded, some search paths have been omitted, the applied search "+
			"line is: "+strings.Join(fit, " "))
	}
	return config, left
}

// unique returns the elements of both lists, each once, in their order. It shares nothing with them.
func unique(a, b []string) []string {
	out := make([]string, 0, len(a)+len(b))
	for _, list := range [...][]string{a, b} {
		for _, s := range list {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// fitting returns the domains that a resolver takes.
func fitting(domains []string) []string {
	out := make([]string, 0, len(domains))
	length := -1 // there is one space fewer than domains
	for _, d := range domains[:min(len(domains), maxSearches)] {
		if len(d) > maxSearchDomain {
			continue
		}
		if length += len(d) + 1; length > maxSearchText {
			break
		}
		out = append(out, d)
	}
	return out
}
