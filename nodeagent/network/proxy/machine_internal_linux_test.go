package proxy

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// TestConcernsMachine: the Services that are not looked at with the machine's ports ask for none, want no load
// balancer, and have no status of one.
func TestConcernsMachine(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	maybe := func(one ...string) string { return one[r.IntN(len(one))] }
	p := &Proxy{cfg: Config{NodeName: "here"}}
	const count = 20_000
	plain := 0
	for range count {
		s := &corev1.Service{Metadata: &metav1.ObjectMeta{}, Spec: &corev1.ServiceSpec{
			Type:      maybe("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
			ClusterIP: maybe("10.96.0.5", "None"),
		}}
		for range r.IntN(3) {
			port := &corev1.ServicePort{Port: 80, Protocol: maybe("TCP", "UDP", "SCTP")}
			if r.IntN(3) == 0 {
				port.NodePort = 30_080
			}
			s.Spec.Ports = append(s.Spec.Ports, port)
		}
		if r.IntN(5) == 0 {
			s.Spec.ExternalIPs = []string{"192.0.2.7"}
		}
		if r.IntN(5) == 0 {
			s.Status = &corev1.ServiceStatus{}
			if r.IntN(2) == 0 {
				s.Status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: []*corev1.LoadBalancerIngress{{Ip: "192.0.2.7"}}}
			}
			if r.IntN(2) == 0 {
				s.Status.Conditions = []*metav1.Condition{{Type: balanced, Status: "True", Message: p.saysServed()}}
			}
		}
		if concernsMachine(s) {
			continue
		}
		plain++
		asked := append(ports([]*corev1.Service{s}, nil), beyond(s)...)
		if len(asked) > 0 || p.isMine(s) || condition(s) != nil {
			t.Errorf("%v asks for %v, and is not looked at", s, asked)
		}
	}
	if plain < count/10 || plain > count/2 {
		t.Errorf("%d of %d Services do not concern the machine", plain, count)
	}
}
