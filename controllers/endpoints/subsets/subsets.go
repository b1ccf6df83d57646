// Package subsets decides what the Endpoints of a service say: which addresses have which ports, packed into as few
// subsets as there are sets of addresses, and at most 1000 of them. It has no clock and asks nobody.
package subsets

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	utilnet "k8s.io/utils/net"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/endpoint"
)

// Max is how many addresses Endpoints have.
const Max = 1000

// Of returns the subsets of a service that selects some pods. Pods that terminate are none of its endpoints, unless
// the service publishes what is not ready. (spec: WORK-4)
func Of(s *corev1.Service, pods []*corev1.Pod) []*corev1.EndpointSubset {
	var all []*corev1.EndpointSubset
	publish := s.GetSpec().GetPublishNotReadyAddresses()
	for _, p := range pods {
		if !endpoint.Counts(p) || p.GetMetadata().GetDeletionTimestamp() != nil && !publish {
			continue
		}
		a := addressOf(s, p)
		if a == nil {
			continue
		}
		add := func(ports ...*corev1.EndpointPort) {
			one := []*corev1.EndpointAddress{a}
			if publish || availability.Ready(p) {
				all = append(all, &corev1.EndpointSubset{Addresses: one, Ports: ports})
			} else {
				all = append(all, &corev1.EndpointSubset{NotReadyAddresses: one, Ports: ports})
			}
		}
		if len(s.GetSpec().GetPorts()) == 0 && s.GetSpec().GetClusterIP() == endpoint.NoAddress {
			add()
		}
		for _, port := range s.GetSpec().GetPorts() {
			if number, err := endpoint.Port(p, port); err == nil {
				add(&corev1.EndpointPort{
					Name: port.GetName(), Port: number, Protocol: port.GetProtocol(), AppProtocol: port.AppProtocol,
				})
			}
		}
	}
	return Repack(all)
}

// addressOf returns the address of a pod of the service's first family; nil when it has none.
func addressOf(s *corev1.Service, p *corev1.Pod) *corev1.EndpointAddress {
	six := false
	switch families := s.GetSpec().GetIpFamilies(); {
	case len(families) > 0:
		six = families[0] == "IPv6"
	case endpoint.HasAddress(s):
		six = utilnet.IsIPv6String(s.GetSpec().GetClusterIP())
	case s.GetSpec().GetClusterIP() == "" || s.GetSpec().GetClusterIP() == endpoint.NoAddress:
		six = utilnet.IsIPv6String(p.GetStatus().GetPodIP())
	}
	for _, has := range p.GetStatus().GetPodIPs() {
		ip := utilnet.ParseIPSloppy(has.GetIp())
		if ip == nil || utilnet.IsIPv6(ip) != six {
			continue
		}
		m, node := p.GetMetadata(), p.GetSpec().GetNodeName()
		return &corev1.EndpointAddress{
			Ip: ip.String(), NodeName: &node, Hostname: endpoint.Hostname(p, s),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
			},
		}
	}
	return nil
}

// identity is what makes an address the same one.
type identity struct{ ip, uid string }

func identityOf(a *corev1.EndpointAddress) identity {
	return identity{a.GetIp(), a.GetTargetRef().GetUid()}
}

// offer is a port, and the addresses that have it: whether each of them is ready.
type offer struct {
	port *corev1.EndpointPort // nil for addresses without ports
	has  map[identity]bool
}

// Repack returns subsets with the same meaning in one form: no address stands twice with a port (where it was ready
// and not ready, it is not), and ports with the same addresses are in one subset. All is in order.
func Repack(all []*corev1.EndpointSubset) []*corev1.EndpointSubset {
	addresses := map[identity]*corev1.EndpointAddress{}
	offers := map[string]*offer{}
	note := func(port *corev1.EndpointPort, list []*corev1.EndpointAddress, ready bool) {
		if len(list) == 0 {
			return
		}
		key := portKey(port)
		o := offers[key]
		if o == nil {
			o = &offer{port: port, has: map[identity]bool{}}
			offers[key] = o
		}
		for _, a := range list {
			id := identityOf(a)
			if addresses[id] == nil {
				addresses[id] = a
			}
			if was, ok := o.has[id]; !ok || was {
				o.has[id] = ready
			}
		}
	}
	for _, s := range all {
		ports := s.GetPorts()
		if len(ports) == 0 {
			ports = []*corev1.EndpointPort{nil}
		}
		for _, port := range ports {
			note(port, s.GetAddresses(), true)
			note(port, s.GetNotReadyAddresses(), false)
		}
	}
	packed := map[string]*corev1.EndpointSubset{}
	for _, o := range offers {
		key := o.key()
		s := packed[key]
		if s == nil {
			s = &corev1.EndpointSubset{}
			for id, ready := range o.has {
				if ready {
					s.Addresses = append(s.Addresses, addresses[id])
				} else {
					s.NotReadyAddresses = append(s.NotReadyAddresses, addresses[id])
				}
			}
			slices.SortFunc(s.Addresses, compare)
			slices.SortFunc(s.NotReadyAddresses, compare)
			packed[key] = s
		}
		if o.port != nil {
			s.Ports = append(s.Ports, o.port)
		}
	}
	out := make([]*corev1.EndpointSubset, 0, len(packed))
	for _, s := range packed {
		slices.SortFunc(s.Ports, func(a, b *corev1.EndpointPort) int { return strings.Compare(portKey(a), portKey(b)) })
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *corev1.EndpointSubset) int {
		return cmp.Or(slices.CompareFunc(a.GetPorts(), b.GetPorts(), func(x, y *corev1.EndpointPort) int {
			return strings.Compare(portKey(x), portKey(y))
		}), slices.CompareFunc(a.GetAddresses(), b.GetAddresses(), compare),
			slices.CompareFunc(a.GetNotReadyAddresses(), b.GetNotReadyAddresses(), compare))
	})
	return out
}

func portKey(p *corev1.EndpointPort) string {
	if p == nil {
		return ""
	}
	protocol := "-"
	if p.AppProtocol != nil {
		protocol = "=" + p.GetAppProtocol()
	}
	return fmt.Sprintf("%s\x00%05d\x00%s\x00%s", p.GetName(), p.GetPort(), p.GetProtocol(), protocol)
}

func (o *offer) key() string {
	texts := make([]string, 0, len(o.has))
	for id, ready := range o.has {
		texts = append(texts, fmt.Sprint(id.ip, " ", id.uid, " ", ready))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

func compare(a, b *corev1.EndpointAddress) int {
	return cmp.Or(strings.Compare(a.GetIp(), b.GetIp()),
		strings.Compare(a.GetTargetRef().GetUid(), b.GetTargetRef().GetUid()))
}

// Truncate leaves Max addresses, of each subset as many as its share, and says whether there were more. Those that are
// not ready go first.
func Truncate(all []*corev1.EndpointSubset) (left []*corev1.EndpointSubset, over bool) {
	ready, unready := 0, 0
	for _, s := range all {
		ready += len(s.GetAddresses())
		unready += len(s.GetNotReadyAddresses())
	}
	if ready+unready <= Max {
		return all, false
	}
	cutReady := ready > Max
	total, room := unready, Max-ready
	if cutReady {
		total, room = ready, Max
	}
	free := room
	for _, s := range all {
		list := s.GetNotReadyAddresses()
		if cutReady {
			list = s.GetAddresses()
		}
		share := int(math.Ceil(float64(len(list)) / float64(total) * float64(room)))
		list = list[:min(len(list), share, free)]
		free -= len(list)
		next := &corev1.EndpointSubset{Ports: s.GetPorts(), Addresses: s.GetAddresses(), NotReadyAddresses: list}
		if cutReady {
			next.Addresses, next.NotReadyAddresses = list, nil
		}
		if len(next.Addresses)+len(next.NotReadyAddresses) > 0 {
			left = append(left, next)
		}
	}
	return left, true
}
