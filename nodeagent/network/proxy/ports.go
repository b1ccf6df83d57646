package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/endpoint"
)

// otherProxy is the label of Services that another proxy serves.
const otherProxy = "service.kubernetes.io/service-proxy-name"

// Port is a port of the machine that leads to a Service.
type Port struct {
	// Network is "tcp" or "udp".
	Network string
	// Listen is the machine's address and port; the address is not valid for all addresses of the machine.
	Listen netip.AddrPort
	// Target is where connections are to be led in the node namespace, by whose rules they reach an endpoint that may be
	// used from outside. Its address is not valid where it is the namespace's own of the client's family.
	Target netip.AddrPort
	// Arrival is where the node namespace takes what the kernel leads there for the target; not valid for nowhere.
	Arrival netip.AddrPort
}

// ports returns the ports of the machine that Services ask for, each once: node ports, and the ports of external
// addresses and load balancers. Whoever listens finds out which of the addresses are the machine's. Arrivals are
// services.Node's.
func ports(services []*corev1.Service, arrivals map[netip.Addr]netip.Addr) []Port {
	return portsOf(map[string]string{"": "tcp", "TCP": "tcp", "UDP": "udp"}, services, arrivals)
}

// beyond returns the ports that Services ask for and that the process cannot pass on, in the form of ports.
func beyond(s *corev1.Service) []Port {
	return portsOf(map[string]string{"SCTP": "sctp"}, []*corev1.Service{s}, nil)
}

// portsOf returns the ports of the protocols that are keys of networks.
func portsOf(networks map[string]string, services []*corev1.Service, arrivals map[netip.Addr]netip.Addr) []Port {
	var out []Port
	for _, s := range services {
		_, other := s.GetMetadata().GetLabels()[otherProxy]
		if other || !endpoint.HasAddress(s) || s.GetSpec().GetType() == endpoint.ExternalName {
			continue
		}
		external := slices.Clone(s.GetSpec().GetExternalIPs())
		for _, i := range s.GetStatus().GetLoadBalancer().GetIngress() {
			if i.GetIpMode() != "Proxy" {
				external = append(external, i.GetIp())
			}
		}
		for _, p := range s.GetSpec().GetPorts() {
			network, ok := networks[p.GetProtocol()]
			if !ok {
				continue
			}
			if n := p.GetNodePort(); n > 0 && n < 1<<16 {
				at := netip.AddrPortFrom(netip.Addr{}, uint16(n))
				out = append(out, Port{Network: network, Listen: at, Target: at})
			}
			for _, ip := range external {
				a, err := netip.ParseAddr(ip)
				if err != nil || p.GetPort() < 1 || p.GetPort() >= 1<<16 {
					continue
				}
				at := netip.AddrPortFrom(a, uint16(p.GetPort()))
				port := Port{Network: network, Listen: at, Target: at}
				if arrival, ok := arrivals[a]; ok {
					port.Arrival = netip.AddrPortFrom(arrival, at.Port())
				}
				out = append(out, port)
			}
		}
	}
	slices.SortFunc(out, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Listen.Compare(b.Listen))
	})
	return slices.Compact(out)
}
