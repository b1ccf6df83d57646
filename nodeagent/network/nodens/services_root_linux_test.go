//go:build rootonly

package nodens_test

import (
	"fmt"
	"net/netip"
	"testing"

	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nodens"
	rules "monoplane.dev/nodeagent/network/services"
)

// TestRootPortsOfServices: clients outside of each family come through node ports and ports of load balancers to a
// Service's endpoint, by TCP and by UDP, also while no server runs.
//
// spec: NET-1
func TestRootPortsOfServices(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	one := clients(t)()
	cfg := config(t)
	n := open(t, cfg)
	servesAll(podIn(t, n, "a", plain(5)))
	own := []string{lan, lan6}
	service := &rules.Rules{UID: "s"}
	var begin []nodens.PortConfig
	for _, network := range []string{"tcp", "udp"} {
		nodePort := nodens.PortConfig{Network: network, Listen: netip.MustParseAddrPort("[::]:8081")}
		for i, r := range cfg.PodRanges {
			node, _ := nodens.NodeAddresses(r)
			at := netip.AddrPortFrom(netip.MustParseAddr(own[i]), 8082)
			nodePort.Targets = append(nodePort.Targets, netip.AddrPortFrom(node, 8081))
			balanced := nodens.PortConfig{Network: network, Listen: at, Targets: []netip.AddrPort{at},
				Arrival: netip.AddrPortFrom(nodens.ArrivalAddress(r), 8082)}
			begin = append(begin, balanced)
			chain := rules.Chain{Name: fmt.Sprintf("service/%s/%d", network, i), V6: node.Is6(),
				Backends: []netip.AddrPort{netip.AddrPortFrom(addresses(5)[i], 80)}}
			service.Chains = append(service.Chains, chain)
			for _, to := range []netip.AddrPort{nodePort.Targets[i], balanced.Arrival} {
				service.Claims = append(service.Claims, rules.Claim{Chain: chain.Name,
					Entry: rules.Entry{Protocol: network, V6: node.Is6(), Addr: to.Addr(), Port: to.Port()}})
			}
		}
		begin = append(begin, nodePort)
	}
	applier, err := rules.NewApplier(rules.Config{NFTables: n.NFTables, Netfilter: n.Netfilter})
	check(t, err)
	check(t, applier.Apply(t.Context(), []rules.Change{{Service: cache.Key{Namespace: "ns", Name: "s"}, Rules: service}}))
	serves := change(t, n, nil, begin)
	answered := func(when string) {
		t.Helper()
		for _, at := range own[:len(cfg.PodRanges)] {
			for _, port := range []uint16{8081, 8082} {
				to := netip.AddrPortFrom(netip.MustParseAddr(at), port).String()
				for _, network := range []string{"tcp", "udp"} {
					sees(t, fmt.Sprintf("%s, %s by %s", when, to, network), one.do(order{Ask: network, Addr: to}).Text)
				}
			}
		}
	}
	answered("with a server")
	shut(t, n, serves)
	answered("without a server")
}
