package services_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/services"
	"monoplane.dev/nodeagent/network/test/netnstest"
	"monoplane.dev/rules/endpoint"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

const (
	nodeName = "here"
	nodeIP   = "10.9.0.1"
	nodeIP6  = "fd00:9::1"
	port     = 8080
	// pods is how many endpoints there can be, 10.1.0.1 and so on.
	pods = 6
)

// world has four namespaces: the node's, one with all pods that are endpoints, one with pods that are clients, and one
// with clients from outside.
type world struct {
	t                            testing.TB
	node, pods, clients, outside *netnstest.NS
	applier                      *services.Applier
	cfg                          services.Config
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, node: netnstest.New(t), pods: netnstest.New(t), clients: netnstest.New(t), outside: netnstest.New(t),
	}
	w.node.Up("lo", nodeIP+"/32", nodeIP6+"/128")
	for _, side := range []struct {
		name, prefix4, prefix6 string
		ns                     *netnstest.NS
	}{
		{"pods", "10.1.0.", "fd00:1::", w.pods}, {"clients", "10.1.1.", "fd00:1:0:1::", w.clients},
		{"outside", "10.2.0.", "fd00:2::", w.outside},
	} {
		name, ns, prefix4, prefix6 := side.name, side.ns, side.prefix4, side.prefix6
		var addrs []string
		for i := range pods {
			addrs = append(addrs, fmt.Sprintf("%s%d/32", prefix4, i+1), fmt.Sprintf("%s%d/128", prefix6, i+1))
		}
		netnstest.Link(w.node, ns, name, "eth0", []string{"169.254.1.1/32", "fd00:ffff::1/128"}, addrs)
		w.node.Route(name, prefix4+"0/24", "", "")
		w.node.Route(name, prefix6+"/64", "", "")
		ns.Route("eth0", "0.0.0.0/0", "169.254.1.1", "")
		ns.Route("eth0", "fd00::/16", "fd00:ffff::1", "")
	}
	w.node.Route("lo", "10.96.0.0/16", "", nodeIP)
	w.node.Route("lo", "fd00:96::/112", "", nodeIP6)
	w.node.Forwards()
	w.cfg = services.Config{
		NFTables: w.node.NFTables, Netfilter: w.node.Netfilter,
		Inside: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")},
	}
	w.applier = w.restarted()
	for i := range pods {
		w.serve(fmt.Sprintf("10.1.0.%d", i+1))
		w.serve(fmt.Sprintf("fd00:1::%d", i+1))
	}
	return w
}

// restarted returns an Applier that knows of nothing yet.
func (w *world) restarted() *services.Applier {
	w.t.Helper()
	a, err := services.NewApplier(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// serve answers every connection and every datagram to a pod with the pod's address and the client's.
func (w *world) serve(ip string) {
	w.t.Helper()
	w.pods.Serve(net.JoinHostPort(ip, fmt.Sprint(port)), func(client, said string) string {
		return fmt.Sprint(ip, " ", client, " ", said)
	})
}

// ask returns which pod answers and which address it sees. Datagrams are sent again: the kernel bounds how many ICMP
// messages it answers with. An answer that comes late is not taken for that to another question.
func ask(c net.Conn) (pod, client string, err error) {
	tries, patience := 1, 30*time.Second
	if _, udp := c.(*net.UDPConn); udp {
		tries, patience = 60, 500*time.Millisecond
	}
	question := rand.Uint64()
	buf := make([]byte, 256)
	for range tries {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := fmt.Fprintln(c, question); err != nil {
			return "", "", err
		}
		for {
			var n int
			if n, err = c.Read(buf); err != nil {
				break
			}
			var to uint64
			if _, err = fmt.Sscan(string(buf[:n]), &pod, &client, &to); err != nil || to == question {
				return pod, client, err
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return pod, client, err
}

// answer connects and asks; refused is true where nobody is reached.
func (w *world) answer(ns *netnstest.NS, network, from, to string) (pod, client string, refused bool) {
	w.t.Helper()
	c, err := ns.Dial(network, from, to)
	if err == nil {
		defer func() { _ = c.Close() }()
		pod, client, err = ask(c)
	}
	// A local program's datagram that is rejected is not sent.
	if errors.Is(err, syscall.ECONNREFUSED) || ns == w.node && errors.Is(err, syscall.EPERM) {
		return "", "", true
	}
	if err != nil {
		w.t.Fatalf("%s from %s to %s: %v", network, from, to, err)
	}
	return pod, client, false
}

func (w *world) apply(changes ...services.Change) {
	w.t.Helper()
	if err := w.applier.Apply(context.Background(), changes); err != nil {
		w.t.Fatal(err)
	}
}

func key(s *corev1.Service) cache.Key { return cache.KeyOf(s) }

// service returns a Service with two addresses and the ports 80 of TCP and UDP.
func service(name, ip string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: "uid-" + name},
		Spec: &corev1.ServiceSpec{
			Type: "ClusterIP", ClusterIP: "10.96.0." + ip, ClusterIPs: []string{"10.96.0." + ip, "fd00:96::" + ip},
			Ports: []*corev1.ServicePort{
				{Name: "t", Protocol: "TCP", Port: 80}, {Name: "u", Protocol: "UDP", Port: 80},
			},
		},
		Status: &corev1.ServiceStatus{},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// end is an endpoint, of pod number pod.
type end struct {
	pod                         int
	ready, serving, terminating bool
	elsewhere                   bool
	zones                       []string
}

func ready(pods ...int) []end {
	var out []end
	for _, p := range pods {
		out = append(out, end{pod: p, ready: true, serving: true})
	}
	return out
}

// slicesOf returns the slices of a Service, one a family.
func slicesOf(s *corev1.Service, ends []end) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	tcp, udp, t, u, number := "TCP", "UDP", "t", "u", int32(port)
	for _, v6 := range []bool{false, true} {
		prefix, family := "10.1.0.", "IPv4"
		if v6 {
			prefix, family = "fd00:1::", "IPv6"
		}
		slice := &discoveryv1.EndpointSlice{
			Metadata: &metav1.ObjectMeta{
				Namespace: "ns", Name: s.GetMetadata().GetName() + family,
				Labels: map[string]string{endpoint.ServiceName: s.GetMetadata().GetName()},
			},
			AddressType: family,
			Ports: []*discoveryv1.EndpointPort{
				{Name: &t, Protocol: &tcp, Port: &number}, {Name: &u, Protocol: &udp, Port: &number},
			},
		}
		for _, e := range ends {
			node := nodeName
			if e.elsewhere {
				node = "elsewhere"
			}
			ep := &discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("%s%d", prefix, e.pod)}, NodeName: &node,
				Conditions: &discoveryv1.EndpointConditions{
					Ready: &e.ready, Serving: &e.serving, Terminating: &e.terminating,
				},
			}
			if len(e.zones) > 0 {
				ep.Hints = &discoveryv1.EndpointHints{}
				for _, z := range e.zones {
					ep.Hints.ForZones = append(ep.Hints.ForZones, &discoveryv1.ForZone{Name: z})
				}
			}
			slice.Endpoints = append(slice.Endpoints, ep)
		}
		out = append(out, slice)
	}
	return out
}

func change(s *corev1.Service, ends []end) services.Change {
	n := services.Node{Name: nodeName, Zone: "a"}
	return services.Change{Service: key(s), Rules: services.Compile(n, s, slicesOf(s, ends))}
}
