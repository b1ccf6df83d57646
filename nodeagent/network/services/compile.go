package services

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/endpoint"
)

const (
	// otherProxy is the label of Services, and of slices, that another proxy serves.
	otherProxy = "service.kubernetes.io/service-proxy-name"
	local      = "Local"
	// defaultAffinity is how long a client is remembered where the Service does not say.
	defaultAffinity = 3 * time.Hour
)

// Compile returns the rules of a Service, nil when it needs none: it is headless, stands for a name or is served by
// another proxy. Slices are those with the Service's label, in any order.
func Compile(n Node, s *corev1.Service, eps []*discoveryv1.EndpointSlice) *Rules {
	m := s.GetMetadata()
	if _, other := m.GetLabels()[otherProxy]; other || !endpoint.HasAddress(s) ||
		s.GetSpec().GetType() == endpoint.ExternalName {
		return nil
	}
	eps = slices.Clone(eps)
	slices.SortFunc(eps, func(a, b *discoveryv1.EndpointSlice) int {
		return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
	})
	c := compiler{
		node: n, service: s, slices: eps, key: cache.KeyOf(s),
		out: &Rules{Since: m.GetCreationTimestamp().GetSeconds(), UID: m.GetUid()},
	}
	for _, v6 := range []bool{false, true} {
		ips := addresses(clusterIPs(s), v6)
		c.out.ClusterIPs = append(c.out.ClusterIPs, ips...)
		if len(ips) == 0 {
			continue // the Service has no such family
		}
		for _, p := range s.GetSpec().GetPorts() {
			c.port(p, v6, ips)
		}
	}
	slices.SortFunc(c.out.Endpoints, netip.Addr.Compare)
	c.out.Endpoints = slices.Compact(c.out.Endpoints)
	return c.out
}

// clusterIPs returns the Service's addresses; the list may be missing in an object that says only the first.
func clusterIPs(s *corev1.Service) []string {
	if ips := s.GetSpec().GetClusterIPs(); len(ips) > 0 {
		return ips
	}
	return []string{s.GetSpec().GetClusterIP()}
}

// addresses returns the addresses of a family, each once.
func addresses(texts []string, v6 bool) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if a = a.WithZone(""); err == nil && !a.Is4In6() && a.Is6() == v6 && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// compiler makes the rules of one Service.
type compiler struct {
	node    Node
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	key     cache.Key
	out     *Rules
}

// port adds the rules of a port in one family.
func (c *compiler) port(p *corev1.ServicePort, v6 bool, ips []netip.Addr) {
	spec := c.service.GetSpec()
	if p.GetPort() < 1 || p.GetPort() > 65535 {
		return
	}
	ends := choose(c.node, backends(c.node, p, v6, c.slices))
	if standins := c.standins(p.GetName(), v6); len(standins) > 0 {
		ends = chosen{cluster: standins, local: standins, any: true}
	}
	what := strings.Join([]string{
		c.key.Namespace, c.key.Name, protocol(p.GetProtocol()), portName(p), strings.ToLower(family(v6)),
	}, "/")
	base := Chain{V6: v6}
	if spec.GetSessionAffinity() == "ClientIP" {
		base.Affinity, base.Timeout = "affinity/"+what, affinityOf(spec)
	}
	// Both kinds of chains share what is remembered of clients, as they do in Kubernetes.
	cluster, localOnes := base, base
	cluster.Backends, localOnes.Backends = ends.cluster, ends.local
	used := len(c.out.Chains)

	inside := c.target("service/"+what, cluster, ends.any)
	if spec.GetInternalTrafficPolicy() == local {
		inside = c.target("local/"+what, localOnes, ends.any)
	}
	for _, ip := range ips {
		c.claim(p, v6, ip, p.GetPort(), inside, true)
	}
	c.outside(p, v6, what, cluster, localOnes, ends.any)
	if base.Affinity != "" && len(c.out.Chains) > used {
		c.out.Affinities = append(c.out.Affinities, Affinity{Name: base.Affinity, V6: v6})
	}
}

// outside adds the rules for addresses and ports that clients outside of the cluster use.
func (c *compiler) outside(p *corev1.ServicePort, v6 bool, what string, cluster, localOnes Chain, some bool) {
	spec := c.service.GetSpec()
	external := addresses(spec.GetExternalIPs(), v6)
	var balancers []netip.Addr
	if spec.GetType() == "LoadBalancer" {
		for _, i := range c.service.GetStatus().GetLoadBalancer().GetIngress() {
			if i.GetIpMode() != "Proxy" { // there the balancer sends to a node port
				balancers = append(balancers, addresses([]string{i.GetIp()}, v6)...)
			}
		}
	}
	nodePort := p.GetNodePort()
	if len(external)+len(balancers) == 0 && nodePort == 0 {
		return
	}
	to := c.target("service/"+what, cluster, some)
	if spec.GetExternalTrafficPolicy() == local && some {
		// Clients inside the cluster are not bound to this node's endpoints: their address is not lost on the way.
		localOnes.Inside = to
		for _, ip := range c.node.Own {
			if ip.Is6() == v6 {
				localOnes.Own = append(localOnes.Own, ip)
			}
		}
		to = c.add("external/"+what, localOnes)
	}
	for _, ip := range external {
		c.arrive(p, v6, ip, to)
	}
	if nodePort > 0 && nodePort <= 65535 {
		c.claim(p, v6, netip.Addr{}, nodePort, to, true)
		for _, ip := range c.node.Own {
			if ip.Is6() == v6 {
				c.claim(p, v6, ip, nodePort, to, true)
			}
		}
	}
	if ranges := spec.GetLoadBalancerSourceRanges(); len(ranges) > 0 && len(balancers) > 0 && to != Reject {
		to = c.add("firewall/"+what, Chain{V6: v6, Sources: prefixes(ranges, v6), Next: to})
	}
	for _, ip := range balancers {
		c.arrive(p, v6, ip, to)
	}
}

// arrive claims an address that clients outside use, and that which stands for it. Ports of that one that nobody
// claims are rejected, as those of a cluster IP.
func (c *compiler) arrive(p *corev1.ServicePort, v6 bool, ip netip.Addr, chain string) {
	c.claim(p, v6, ip, p.GetPort(), chain, false)
	arrival, ok := c.node.Arrivals[ip]
	if !ok {
		return
	}
	c.claim(p, v6, arrival, p.GetPort(), chain, false)
	if !slices.Contains(c.out.ClusterIPs, arrival) {
		c.out.ClusterIPs = append(c.out.ClusterIPs, arrival)
	}
}

// target returns where packets go that a chain with backends is for; some says that the Service has endpoints at all.
func (c *compiler) target(what string, chain Chain, some bool) string {
	switch {
	case len(chain.Backends) > 0:
		return c.add(what, chain)
	case some:
		return Drop
	default:
		return Reject
	}
}

// add adds a chain unless it is there, and returns its name.
func (c *compiler) add(what string, chain Chain) string {
	chain = chain.named(what)
	if !slices.ContainsFunc(c.out.Chains, func(have Chain) bool { return have.Name == chain.Name }) {
		c.out.Chains = append(c.out.Chains, chain)
		for _, b := range chain.Backends {
			c.out.Endpoints = append(c.out.Endpoints, b.Addr())
		}
	}
	return chain.Name
}

func (c *compiler) claim(p *corev1.ServicePort, v6 bool, addr netip.Addr, port int32, chain string, allocated bool) {
	e := Entry{Protocol: protocol(p.GetProtocol()), V6: v6, Addr: addr, Port: uint16(port)} //nolint:gosec // in range
	c.out.Claims = append(c.out.Claims, Claim{Entry: e, Chain: chain, Allocated: allocated})
}

func (c *compiler) standins(port string, v6 bool) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range c.node.Standins[c.key][port] {
		if a.Addr().Is6() == v6 {
			out = append(out, a)
		}
	}
	return out
}

// portName returns how a port is called in names of chains: its name, or its number where it has none.
func portName(p *corev1.ServicePort) string {
	if p.GetName() != "" {
		return p.GetName()
	}
	return strconv.Itoa(int(p.GetPort()))
}

// affinityOf returns how long clients are remembered.
func affinityOf(spec *corev1.ServiceSpec) time.Duration {
	if s := spec.GetSessionAffinityConfig().GetClientIP().GetTimeoutSeconds(); s > 0 {
		return time.Duration(s) * time.Second
	}
	return defaultAffinity
}

// prefixes returns the ranges of a family.
func prefixes(texts []string, v6 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err == nil && p.Addr().Is6() == v6 {
			out = append(out, p.Masked())
		}
	}
	return out
}
