package services_test

import (
	"net/netip"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/nodeagent/network/services"
)

// The kernel leads associations of SCTP to an endpoint of a cluster IP, in both families, with the client's address.
func TestSCTP(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10", func(s *corev1.Service) {
		s.Spec.Ports = []*corev1.ServicePort{{Name: "s", Protocol: "SCTP", Port: 3868}}
	})
	slices := slicesOf(s, ready(2))
	name, protocol, number := "s", "SCTP", int32(port)
	for _, slice := range slices {
		slice.Ports = []*discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &number}}
	}
	w.apply(services.Change{Service: key(s), Rules: services.Compile(services.Node{Name: nodeName}, s, slices)})
	for _, c := range []struct{ client, to, pod string }{
		{"10.1.1.5", "10.96.0.10:3868", "10.1.0.2"}, {"fd00:1:0:1::5", "[fd00:96::10]:3868", "fd00:1::2"},
	} {
		pod := w.pods.SCTP(netip.MustParseAddr(c.pod), time.Minute)
		w.clients.SCTP(netip.MustParseAddr(c.client), time.Minute).Begin(40001, netip.MustParseAddrPort(c.to))
		if from, at, err := pod.Begun(); err != nil || from.String() != c.client || at != port {
			t.Errorf("to %s: the pod hears from %s, at port %d, %v", c.to, from, at, err)
		}
	}
}
