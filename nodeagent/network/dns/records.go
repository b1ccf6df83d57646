package dns

import (
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/rules/endpoint"
)

// recordsOf returns the records of a Service.
func recordsOf(domain string, s *corev1.Service, eps []*discoveryv1.EndpointSlice) made {
	meta, spec := s.GetMetadata(), s.GetSpec()
	name := strings.ToLower(meta.GetName() + "." + meta.GetNamespace() + ".svc." + domain)
	m := made{names: map[string]*record{name: {}}, addrs: map[netip.Addr]string{}}
	switch {
	case spec.GetType() == endpoint.ExternalName:
		// An address is no name; kubectl warns of it, and resolvers would ask for ever.
		if target := spec.GetExternalName(); validTarget(target) {
			m.names[name].cname = mdns.CanonicalName(target)
		}
	case endpoint.HasAddress(s):
		ips := spec.GetClusterIPs()
		if len(ips) == 0 {
			ips = []string{spec.GetClusterIP()}
		}
		for _, ip := range ips {
			if a, ok := m.names[name].add(ip); ok {
				m.addrs[a] = name
			}
		}
		all := m.names[name].all()
		for _, p := range spec.GetPorts() {
			m.port(name, p.GetName(), p.GetProtocol(), service{uint16(p.GetPort()), name, all}) //nolint:gosec // valid
		}
	default:
		m.headless(name, s, eps)
	}
	return m
}

func validTarget(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return false
	}
	_, ok := mdns.IsDomainName(name)
	return ok
}

// headless adds the records of endpoints.
func (m made) headless(name string, s *corev1.Service, eps []*discoveryv1.EndpointSlice) {
	for _, slice := range eps {
		if slice.GetAddressType() != "IPv4" && slice.GetAddressType() != "IPv6" {
			continue
		}
		for _, e := range slice.GetEndpoints() {
			c := e.GetConditions()
			ready := c == nil || c.Ready == nil || c.GetReady()
			if !ready && !s.GetSpec().GetPublishNotReadyAddresses() {
				continue
			}
			for _, ip := range e.GetAddresses() {
				a, ok := m.names[name].add(ip)
				if !ok {
					continue
				}
				host := e.GetHostname()
				if host == "" {
					host = strings.NewReplacer(".", "-", ":", "-").Replace(ip)
				}
				host = strings.ToLower(host) + "." + name
				if m.names[host] == nil {
					m.names[host] = &record{}
				}
				m.names[host].add(ip)
				m.addrs[a] = host
				for _, p := range slice.GetPorts() {
					if p.GetPort() > 0 && p.GetPort() < 1<<16 {
						m.port(name, p.GetName(), p.GetProtocol(), service{uint16(p.GetPort()), host, []netip.Addr{a}})
					}
				}
			}
		}
	}
}

// add adds an address once.
func (r *record) add(ip string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(ip)
	if err != nil || a.Is4In6() {
		return a, false
	}
	a = a.WithZone("")
	list := &r.v4
	if a.Is6() {
		list = &r.v6
	}
	if !slices.Contains(*list, a) {
		*list = append(*list, a)
	}
	return a, true
}

func (r *record) all() []netip.Addr { return slices.Concat(r.v4, r.v6) }

// port adds a port to the name that says its name and protocol, and to the Service's own.
func (m made) port(name, port, protocol string, s service) {
	if port != "" {
		if protocol == "" {
			protocol = "TCP"
		}
		full := "_" + strings.ToLower(port) + "._" + strings.ToLower(protocol) + "." + name
		if m.names[full] == nil {
			m.names[full] = &record{}
		}
		m.names[full].srvAdd(s)
	}
	m.names[name].srvAdd(s)
}

// srvAdd adds a port of a target once: an endpoint with addresses of two families is in two slices.
func (r *record) srvAdd(s service) {
	i := slices.IndexFunc(r.srv, func(have service) bool { return have.port == s.port && have.target == s.target })
	if i < 0 {
		r.srv = append(r.srv, service{s.port, s.target, slices.Clone(s.addrs)})
		return
	}
	for _, a := range s.addrs {
		if !slices.Contains(r.srv[i].addrs, a) {
			r.srv[i].addrs = append(r.srv[i].addrs, a)
		}
	}
}
