package nodens_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nodens"
	rules "monoplane.dev/nodeagent/network/services"
)

// ways is what testEveryWay has.
type ways struct {
	n       *nodens.Namespace
	clients map[string]func(network, addr string) (string, error)
	// elsewhere is a server that is neither on the machine nor a pod, by network.
	elsewhere map[string]string
	// reaches tells whether the machine itself reaches cluster IPs.
	reaches bool
}

// TestRootlessEveryWay: every kind of client comes on every way to every kind of endpoint that a Service can have, and
// by both traffic policies.
//
// spec: NET-1
func TestRootlessEveryWay(t *testing.T) {
	asUser(t, func(t *testing.T) {
		n := open(t, config(t))
		w := ways{n: n, elsewhere: map[string]string{}, clients: map[string]func(string, string) (string, error){
			"the machine": asks, "a pod": asking(podIn(t, n, "a", plain(5))),
		}}
		for _, network := range []string{"tcp", "udp"} {
			w.elsewhere[network] = served(t, network, outside)
		}
		testEveryWay(t, w)
	})
}

func asks(network, addr string) (string, error) { return ask(network, addr, 1000) }

func asking(p *pod) func(network, addr string) (string, error) {
	return func(network, addr string) (string, error) {
		a := p.try(order{Ask: network, Addr: addr, Bytes: 1000})
		if a.Err != "" {
			return "", fmt.Errorf("%s", a.Err)
		}
		return a.Text, nil
	}
}

// testEveryWay serves a Service with each kind of endpoint, on a port of its own of each way. A pod with hostNetwork
// is the machine, as client and as endpoint. Endpoints elsewhere are another node's: by the policy Local only pods and
// the machine come there.
func testEveryWay(t *testing.T, w ways) {
	t.Helper()
	servesAll(podIn(t, w.n, "b", plain(6)))
	pod, machine := map[string]string{}, map[string]string{}
	for _, network := range []string{"tcp", "udp"} {
		pod[network], machine[network] = "10.244.0.6:80", served(t, network, lan)
	}
	node, _ := nodens.NodeAddresses(pods4)
	own, arrival := netip.MustParseAddr(lan), nodens.ArrivalAddress(pods4)
	of := rules.Node{Name: "node", Own: []netip.Addr{own}, Arrivals: map[netip.Addr]netip.Addr{own: arrival}}
	applier, err := rules.NewApplier(rules.Config{NFTables: w.n.NFTables, Netfilter: w.n.Netfilter,
		Inside: []netip.Prefix{pods4}})
	check(t, err)
	var changes []rules.Change
	var ports []nodens.PortConfig
	type service struct {
		to, node, policy, clusterIP string
		at                          int
	}
	var all []service
	for i, end := range []map[string]string{pod, machine, w.elsewhere} {
		for j, policy := range []string{"Cluster", "Local"} {
			s := service{to: []string{"a pod", "the machine", "elsewhere"}[i], node: []string{"node", "node", "other"}[i],
				policy: policy, clusterIP: fmt.Sprintf("10.96.7.%d", 10*i+j), at: 31000 + 10*i + j}
			all = append(all, s)
			meta := &metav1.ObjectMeta{Name: fmt.Sprintf("s%d", s.at), Namespace: "ns", Uid: s.clusterIP,
				Labels: map[string]string{"kubernetes.io/service-name": fmt.Sprintf("s%d", s.at)}}
			object := &corev1.Service{Metadata: meta, Spec: &corev1.ServiceSpec{Type: "NodePort", ClusterIP: s.clusterIP,
				ClusterIPs: []string{s.clusterIP}, IpFamilies: []string{"IPv4"}, ExternalIPs: []string{lan},
				ExternalTrafficPolicy: policy, InternalTrafficPolicy: new(policy)}}
			if s.node != "node" {
				object.Spec.InternalTrafficPolicy = nil
			}
			var eps []*discoveryv1.EndpointSlice
			for _, network := range []string{"tcp", "udp"} {
				p := strings.ToUpper(network)
				object.Spec.Ports = append(object.Spec.Ports, &corev1.ServicePort{Name: network, Protocol: p,
					Port: int32(s.at) + 1000, NodePort: int32(s.at)})
				to := netip.MustParseAddrPort(end[network])
				eps = append(eps, &discoveryv1.EndpointSlice{Metadata: meta, AddressType: "IPv4",
					Endpoints: []*discoveryv1.Endpoint{{Addresses: []string{to.Addr().String()}, NodeName: new(s.node)}},
					Ports:     []*discoveryv1.EndpointPort{{Name: new(network), Protocol: new(p), Port: new(int32(to.Port()))}}})
				external := netip.AddrPortFrom(own, uint16(s.at+1000))
				ports = append(ports, nodens.PortConfig{Network: network,
					Listen:  netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(s.at)),
					Targets: []netip.AddrPort{netip.AddrPortFrom(node, uint16(s.at))}},
					nodens.PortConfig{Network: network, Listen: external, Targets: []netip.AddrPort{external},
						Arrival: netip.AddrPortFrom(arrival, external.Port())})
			}
			changes = append(changes, rules.Change{Service: cache.KeyOf(object),
				Rules: rules.Compile(of, object, eps)})
		}
	}
	check(t, applier.Apply(t.Context(), changes))
	_, errs := w.n.ChangePorts(t.Context(), nil, ports)
	check(t, errors.Join(errs...))
	for _, s := range all {
		for _, client := range slices.Sorted(maps.Keys(w.clients)) {
			if s.policy == "Local" && s.node != "node" && client == "another machine" {
				continue
			}
			for way, at := range map[string]string{
				"cluster IP":                fmt.Sprintf("%s:%d", s.clusterIP, s.at+1000),
				"node port by its address":  fmt.Sprintf("%s:%d", lan, s.at),
				"node port by the loopback": fmt.Sprintf("127.0.0.1:%d", s.at),
				"external IP":               fmt.Sprintf("%s:%d", lan, s.at+1000),
			} {
				switch way {
				case "cluster IP":
					if client != "a pod" && (client != "the machine" || !w.reaches) {
						continue
					}
				case "node port by the loopback":
					if client != "the machine" {
						continue
					}
				}
				for _, network := range []string{"tcp", "udp"} {
					if _, err := w.clients[client](network, at); err != nil {
						t.Errorf("%s by %s, policy %s, %s to %s: %v", client, way, s.policy, network, s.to, err)
					}
				}
			}
		}
	}
}
