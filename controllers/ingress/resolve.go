package ingress

import (
	"net/netip"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/rules/endpoint"
)

// cleartext is the appProtocol of ports that speak HTTP/2 without TLS.
const cleartext = "kubernetes.io/h2c"

// port names a port of a Service: by its name, or else by its number.
type port struct {
	name   string
	number int32
}

func portOf(b *networkingv1.IngressServiceBackend) port {
	return port{b.GetPort().GetName(), b.GetPort().GetNumber()}
}

// resolve returns where requests for a port of a Service go, and whether in HTTP/2: to the endpoints that are ready,
// or, where none is, to those that terminate and still serve, as traffic to the Service does. Of two families of
// addresses the Service's first one counts. Nowhere is where a Service without that port, and one that stands for a
// name, lead.
func resolve(s *corev1.Service, p port, eps []*discoveryv1.EndpointSlice) (at []netip.AddrPort, http2 bool) {
	if s.GetSpec().GetType() == endpoint.ExternalName {
		return nil, false
	}
	i := slices.IndexFunc(s.GetSpec().GetPorts(), func(has *corev1.ServicePort) bool {
		if has.GetProtocol() != "" && has.GetProtocol() != "TCP" {
			return false
		}
		return p.name != "" && has.GetName() == p.name || p.name == "" && has.GetPort() == p.number
	})
	if i < 0 {
		return nil, false
	}
	is := s.GetSpec().GetPorts()[i]
	families := append(slices.Clone(s.GetSpec().GetIpFamilies()), "IPv4", "IPv6") // those without a selector may say none
	for _, draining := range []bool{false, true} {
		for _, family := range families {
			if at = endpointsOf(eps, family, is.GetName(), draining); len(at) > 0 {
				return at, is.GetAppProtocol() == cleartext
			}
		}
	}
	return nil, false
}

// endpointsOf returns the endpoints of a port in a family that are ready, or that terminate and still serve, each
// once. What is not said about an endpoint is taken for good.
func endpointsOf(eps []*discoveryv1.EndpointSlice, family, name string, draining bool) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range eps {
		if s.GetAddressType() != family {
			continue
		}
		for _, p := range s.GetPorts() {
			number := p.GetPort()
			if p.GetName() != name || p.GetProtocol() != "" && p.GetProtocol() != "TCP" || number < 1 || number > 65535 {
				continue
			}
			for _, e := range s.GetEndpoints() {
				c := e.GetConditions()
				wanted := c == nil || c.Ready == nil || c.GetReady()
				if draining {
					wanted = c.GetTerminating() && (c.Serving == nil || c.GetServing())
				}
				if !wanted || len(e.GetAddresses()) == 0 {
					continue
				}
				if addr, err := netip.ParseAddr(e.GetAddresses()[0]); err == nil {
					out = append(out, netip.AddrPortFrom(addr.WithZone(""), uint16(number)))
				}
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
