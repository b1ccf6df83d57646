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

// DNS returns how the pod resolves names, and what of that had to be left out, in sentences. The policy says what it
// begins with: the cluster's resolver, the node's, or nothing; dnsConfig adds to it. Where the cluster has no
// resolver, or the pod the node's network and not ClusterFirstWithHostNet, ClusterFirst means the node's, and so does
// ClusterFirstWithHostNet where the cluster's resolver is not reached on the node's network. spec: LIFE-8
func DNS(p *corev1.Pod, f Facts) (config *runtimeapi.DNSConfig, left []string) {
	config = &runtimeapi.DNSConfig{}
	outside := p.GetSpec().GetHostNetwork() && f.WithoutServices
	switch policy := p.GetSpec().GetDnsPolicy(); {
	case policy == "None":
	case len(f.node().ClusterDNS) > 0 && policy != "Default" && !outside &&
		(policy == "ClusterFirstWithHostNet" || !p.GetSpec().GetHostNetwork()):
		domain := f.node().ClusterDomain
		config.Servers = f.node().ClusterDNS
		config.Searches = unique(
			[]string{p.GetMetadata().GetNamespace() + ".svc." + domain, "svc." + domain, domain}, f.Resolver.Searches)
		config.Options = []string{"ndots:5"}
	default:
		r := f.Resolver
		config.Servers, config.Searches, config.Options = r.Servers, r.Searches, r.Options
		if outside && policy == "ClusterFirstWithHostNet" && len(f.node().ClusterDNS) > 0 {
			left = append(left, "The pod is on the machine's network, from which this cluster's Services are not reached: "+
				"it resolves names as the machine does, and dnsPolicy ClusterFirstWithHostNet has no effect")
		}
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
