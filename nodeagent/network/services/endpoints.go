package services

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
)

// backend is one endpoint of a port of a Service.
type backend struct {
	at                          netip.AddrPort
	ready, serving, terminating bool
	local                       bool
	zones, nodes                []string // the hints
}

// draining says that the endpoint terminates and still serves.
func (b backend) draining() bool { return b.serving && b.terminating }

// backends returns the endpoints of a port in one family, ordered by address, each once. Where an address is in
// several slices, as while it moves from one to another, the entry that says most in its favour counts.
func backends(n Node, p *corev1.ServicePort, v6 bool, eps []*discoveryv1.EndpointSlice) []backend {
	var out []backend
	for _, s := range eps {
		if s.GetAddressType() != family(v6) {
			continue
		}
		for _, port := range s.GetPorts() {
			if port.GetName() != p.GetName() || protocol(port.GetProtocol()) != protocol(p.GetProtocol()) ||
				port.GetPort() < 1 || port.GetPort() > 65535 {
				continue
			}
			for _, e := range s.GetEndpoints() {
				if b, ok := backendOf(n, e, uint16(port.GetPort()), v6); ok {
					out = append(out, b)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b backend) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.favour(), a.favour()))
	})
	return slices.CompactFunc(out, func(a, b backend) bool { return a.at == b.at })
}

func (b backend) favour() int {
	switch {
	case b.ready:
		return 2
	case b.serving:
		return 1
	default:
		return 0
	}
}

// backendOf reads an endpoint. Only its first address counts, as in Kubernetes. What is not said about an endpoint is
// taken for good: ready, serving, not terminating.
func backendOf(n Node, e *discoveryv1.Endpoint, port uint16, v6 bool) (backend, bool) {
	if len(e.GetAddresses()) == 0 {
		return backend{}, false
	}
	addr, err := netip.ParseAddr(e.GetAddresses()[0])
	if err != nil || addr.Is6() != v6 || addr.Is4In6() {
		return backend{}, false
	}
	c := e.GetConditions()
	b := backend{
		at:          netip.AddrPortFrom(addr.WithZone(""), port),
		ready:       c == nil || c.Ready == nil || c.GetReady(),
		serving:     c == nil || c.Serving == nil || c.GetServing(),
		terminating: c.GetTerminating(),
		local:       e.GetNodeName() != "" && e.GetNodeName() == n.Name,
	}
	for _, z := range e.GetHints().GetForZones() {
		b.zones = append(b.zones, z.GetName())
	}
	for _, h := range e.GetHints().GetForNodes() {
		b.nodes = append(b.nodes, h.GetName())
	}
	return b, true
}

// LocalReady returns how many endpoints of a Service are ready on a node: addresses of one family, of that which has
// more of them.
func LocalReady(node string, eps []*discoveryv1.EndpointSlice) int {
	most := 0
	for _, v6 := range []bool{false, true} {
		found := map[netip.Addr]bool{}
		for _, s := range eps {
			for _, e := range s.GetEndpoints() {
				if b, ok := backendOf(Node{Name: node}, e, 0, v6); ok && b.local && b.ready {
					found[b.at.Addr()] = true
				}
			}
		}
		most = max(most, len(found))
	}
	return most
}

// chosen are the endpoints that traffic of a port goes to.
type chosen struct {
	cluster, local []netip.AddrPort
	// any says that there are endpoints somewhere, although perhaps none that this node may use.
	any bool
}

// choose picks those that traffic goes to: what is ready, or, where nothing is, what terminates and still serves.
// Hints narrow the choice among those of the whole cluster when every ready endpoint has them and one is meant for
// this node.
func choose(n Node, all []backend) chosen {
	keep := narrowed(n, all)
	var c chosen
	c.cluster = pick(all, func(b backend) bool { return b.ready && keep(b) })
	if len(c.cluster) == 0 {
		c.cluster = pick(all, backend.draining)
	}
	c.local = pick(all, func(b backend) bool { return b.local && b.ready })
	if len(c.local) == 0 {
		c.local = pick(all, func(b backend) bool { return b.local && b.draining() })
	}
	c.any = slices.ContainsFunc(all, func(b backend) bool { return b.ready || b.draining() })
	return c
}

func pick(all []backend, want func(backend) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for _, b := range all {
		if want(b) {
			out = append(out, b.at)
		}
	}
	return out
}

// narrowed returns which endpoints the hints leave to this node: those for the node itself, else those for its zone.
func narrowed(n Node, all []backend) func(backend) bool {
	for _, by := range []struct {
		name string
		of   func(backend) []string
	}{
		{n.Name, func(b backend) []string { return b.nodes }},
		{n.Zone, func(b backend) []string { return b.zones }},
	} {
		everywhere, here := true, false
		for _, b := range all {
			if !b.ready {
				continue
			}
			everywhere = everywhere && len(by.of(b)) > 0
			here = here || slices.Contains(by.of(b), by.name)
		}
		if by.name != "" && everywhere && here {
			return func(b backend) bool { return slices.Contains(by.of(b), by.name) }
		}
	}
	return func(backend) bool { return true }
}

// protocol returns the protocol in the form of the rules: lower case, TCP where none is given.
func protocol(s string) string { return strings.ToLower(cmp.Or(s, "TCP")) }

// family is the address type of slices.
func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
