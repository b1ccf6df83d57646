package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/network/proxy"
)

const (
	machineIP = "192.0.2.7"
	arrival   = "10.1.0.0" // What stands for it in the node namespace.
)

// onNode gives the node of the world an address.
func (w *world) onNode() {
	w.t.Helper()
	n, err := w.api.Nodes.Create(w.t.Context(), &corev1rpc.CreateNodeRequest{
		Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "here"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.Status = &corev1.NodeStatus{Addresses: []*corev1.NodeAddress{
		{Type: "Hostname", Address: "here"}, {Type: "InternalIP", Address: machineIP},
	}}
	if _, err := w.api.Nodes.UpdateStatus(w.t.Context(),
		&corev1rpc.UpdateNodeRequest{Name: "here", Object: n}); err != nil {
		w.t.Fatal(err)
	}
	w.ns.Route("lo", machineIP+"/32", "", nodeIP)
	w.ns.Route("lo", arrival+"/32", "", nodeIP)
	w.eventually("the machine's addresses are told", func() bool {
		own, _ := w.own.Load().([]netip.Addr)
		return slices.Equal(own, []netip.Addr{netip.MustParseAddr(machineIP)})
	})
}

func balanced(change ...func(*corev1.ServiceSpec)) *corev1.ServiceSpec {
	s := &corev1.ServiceSpec{Type: "LoadBalancer", Ports: []*corev1.ServicePort{{Name: "http", Port: 80}}}
	for _, f := range change {
		f(s)
	}
	return s
}

// says returns the addresses of a Service's load balancer, and what its condition says.
func (w *world) says(name string) (ips, why string) {
	w.t.Helper()
	s, err := w.api.Services.Get(w.t.Context(), &metav1.GetRequest{Namespace: "shop", Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, i := range s.GetStatus().GetLoadBalancer().GetIngress() {
		all = append(all, i.GetIp())
	}
	for _, c := range s.GetStatus().GetConditions() {
		why += c.GetStatus() + ": " + c.GetMessage()
	}
	return strings.Join(all, " "), why
}

func (w *world) becomes(name, ips, why string) {
	w.t.Helper()
	var gotIPs, gotWhy string
	w.eventually(name+" has "+ips+" "+why, func() bool {
		gotIPs, gotWhy = w.says(name)
		return gotIPs == ips && (why == "" && gotWhy == "" || why != "" && strings.Contains(gotWhy, why))
	})
}

// serves plays who serves the machine's ports: results has what becomes of them, those that are missing are served.
func (w *world) serves(results func(proxy.Port) error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case all := <-w.ports:
				out := map[proxy.Port]error{}
				for _, p := range all {
					out[p] = results(p)
				}
				w.proxy.Served(out)
			case <-w.t.Context().Done():
				return
			}
		}
	}()
	w.t.Cleanup(func() { <-done })
}

// A Service of type LoadBalancer has the machine's address, once it is served there: the rules lead to its pods. Of
// two that want one port the older has it, and the other says why it waits.
//
// spec: WORK-4
func TestLoadBalancer(t *testing.T) {
	w := newWorld(t)
	w.onNode()
	taken := errors.New("somebody has the port")
	w.serves(func(p proxy.Port) error {
		if want := netip.AddrPortFrom(netip.MustParseAddr(arrival), p.Listen.Port()); p.Listen.Addr().IsValid() &&
			p.Arrival != want {
			t.Errorf("%+v arrives at %v; want %v", p.Listen, p.Arrival, want)
		}
		if p.Listen == netip.MustParseAddrPort(machineIP+":22") {
			return taken
		}
		return nil
	})
	for service, pod := range map[string]string{"first": "10.1.0.1", "second": "10.1.0.2", "ssh": "10.1.0.1"} {
		if _, err := w.api.EndpointSlices.Create(t.Context(), &discoveryv1rpc.CreateEndpointSliceRequest{
			Namespace: "shop", Object: w.slice(service, pod),
		}); err != nil {
			t.Fatal(err)
		}
	}
	const served = "True: its ports are served on node here"
	w.create("shop", "first", balanced())
	w.becomes("first", machineIP, served)
	for _, at := range []string{machineIP, arrival} {
		if who, err := w.reach(at + ":80"); err != nil || who != "10.1.0.1" { // at once: no address before
			t.Errorf("by %s reached %q, %v", at, who, err)
		}
	}
	w.create("shop", "second", balanced())
	w.becomes("second", "", "False: port 80 of tcp is used by Service shop/first")
	const why = "is used by Service shop/first"
	w.eventually("an event says so", func() bool {
		all, err := w.api.Events.List(t.Context(), &metav1.ListRequest{Namespace: "shop"})
		return err == nil && slices.ContainsFunc(all.GetItems(), func(e *corev1.Event) bool {
			return e.GetInvolvedObject().GetName() == "second" && strings.Contains(e.GetMessage(), why)
		})
	})

	// A port that is somebody else's on the machine is no address of the Service, and pods reach who has it.
	w.create("shop", "ssh", balanced(func(s *corev1.ServiceSpec) { s.Ports[0].Port = 22 }))
	w.becomes("ssh", "", "False: "+taken.Error())
	w.eventually("there are no rules for it", func() bool {
		who, err := w.reach(machineIP + ":22")
		return err != nil && who == ""
	})

	// Other load balancers' Services are theirs.
	class := "example.com/other"
	w.create("shop", "classed", balanced(func(s *corev1.ServiceSpec) {
		s.LoadBalancerClass, s.Ports[0].Port = &class, 81
	}))
	w.create("shop", "last", balanced(func(s *corev1.ServiceSpec) { s.Ports[0].Port = 82 }))
	w.becomes("last", machineIP, served)
	if ips, why := w.says("classed"); ips != "" || why != "" {
		t.Errorf("the Service of another class has %q %q", ips, why)
	}

	// What one gives up the other gets.
	if _, err := w.api.Services.Patch(t.Context(), &metav1.PatchRequest{Namespace: "shop", Name: "first",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"spec":{"type":"ClusterIP"}}`)}); err != nil {
		t.Fatal(err)
	}
	w.becomes("first", "", "")
	w.becomes("second", machineIP, served)
	if who, err := w.reach(machineIP + ":80"); err != nil || who != "10.1.0.2" {
		t.Errorf("reached %q, %v", who, err)
	}
}

// A node port that somebody else has, and an external IP that is not the machine's, are told of by an event each,
// once, and once more when they are served.
func TestPortsThatAreNotServed(t *testing.T) {
	w := newWorld(t)
	w.onNode()
	var free atomic.Bool
	taken := errors.New("somebody has the port")
	s := w.create("shop", "web", &corev1.ServiceSpec{Type: "NodePort", ExternalIPs: []string{"203.0.113.5"},
		Ports: []*corev1.ServicePort{{Name: "http", Port: 80}}})
	_ = w.create("shop", "fine", &corev1.ServiceSpec{Type: "NodePort", Ports: []*corev1.ServicePort{{Port: 80}}})
	nodePort := uint16(s.GetSpec().GetPorts()[0].GetNodePort())
	asked := make(chan uint16, 1000)
	w.serves(func(p proxy.Port) error {
		asked <- p.Listen.Port()
		if !free.Load() && (p.Listen.Port() == nodePort || p.Listen.Addr().IsValid()) {
			return taken
		}
		return nil
	})
	told := func() (all []string) {
		list, err := w.api.Events.List(t.Context(), &metav1.ListRequest{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.GetItems() {
			all = append(all, fmt.Sprintf("%s %s %s x%d", e.GetInvolvedObject().GetName(), e.GetReason(), e.GetMessage(),
				e.GetSeries().GetCount()))
		}
		slices.Sort(all)
		return all
	}
	port := fmt.Sprintf("node port %d of tcp", nodePort)
	const external = "external IP 203.0.113.5, port 80 of tcp,"
	const why = " is not served on node here: somebody has the port. It is tried again x0"
	want := []string{"web NodePortNotServed The " + external + why, "web NodePortNotServed The " + port + why}
	w.eventually("events say so", func() bool { return slices.Equal(told(), want) })
	// Whatever changes otherwise, nothing is told again.
	other := w.create("shop", "other", &corev1.ServiceSpec{Type: "NodePort", Ports: []*corev1.ServicePort{{Port: 80}}})
	for port := range asked {
		if port == uint16(other.GetSpec().GetPorts()[0].GetNodePort()) {
			break
		}
	}
	free.Store(true)
	_ = w.create("shop", "last", &corev1.ServiceSpec{Type: "NodePort", Ports: []*corev1.ServicePort{{Port: 80}}})
	const served = " is served on node here by now x0"
	want = append([]string{"web NodePortServed The " + external + served, "web NodePortServed The " + port + served},
		want...)
	slices.Sort(want)
	w.eventually("events say that they are", func() bool { return slices.Equal(told(), want) })
}

// A node port of SCTP, and an external IP, which nobody carries from the machine, are told of by an event each, beside
// one of TCP that is served.
func TestPortsOfSCTP(t *testing.T) {
	w := newWorld(t)
	w.onNode()
	w.serves(func(p proxy.Port) error {
		if p.Network == "sctp" {
			t.Errorf("%+v is to be served", p)
		}
		return nil
	})
	s := w.create("shop", "mixed", &corev1.ServiceSpec{Type: "NodePort", ExternalIPs: []string{"203.0.113.5"},
		Ports: []*corev1.ServicePort{{Name: "web", Port: 80}, {Name: "signals", Port: 81, Protocol: "SCTP"}}})
	const why = " is not served on node here: SCTP is not carried from the machine's ports"
	want := []string{"The external IP 203.0.113.5, port 81 of sctp," + why,
		fmt.Sprintf("The node port %d of sctp%s", s.GetSpec().GetPorts()[1].GetNodePort(), why)}
	w.eventually("events say so", func() bool {
		list, err := w.api.Events.List(t.Context(), &metav1.ListRequest{Namespace: "shop"})
		var told []string
		for _, e := range list.GetItems() {
			told = append(told, e.GetMessage())
		}
		slices.Sort(told)
		return err == nil && slices.Equal(told, want)
	})
}

// Nobody listens on the machine for a Service that another proxy serves: the ports are the other's.
func TestPortsOfAnotherProxy(t *testing.T) {
	w := newWorld(t)
	w.onNode()
	var ports []int32
	for _, labels := range []map[string]string{{"service.kubernetes.io/service-proxy-name": "other"}, nil} {
		s, err := w.api.Services.Create(t.Context(), &corev1rpc.CreateServiceRequest{
			Namespace: "shop", Object: &corev1.Service{
				Metadata: &metav1.ObjectMeta{GenerateName: "web-", Labels: labels},
				Spec: &corev1.ServiceSpec{Type: "NodePort", ExternalIPs: []string{machineIP},
					Ports: []*corev1.ServicePort{{Port: 80 + int32(len(ports))}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, s.GetSpec().GetPorts()[0].GetNodePort(), s.GetSpec().GetPorts()[0].GetPort())
	}
	w.eventually("the ports of the other Service are served", func() bool {
		served := map[int32]bool{}
		for _, p := range <-w.ports {
			served[int32(p.Listen.Port())] = true
		}
		if served[ports[0]] || served[ports[1]] {
			t.Fatalf("of the ports %v %v are served", ports, served)
		}
		return served[ports[2]] && served[ports[3]]
	})
}

// A load balancer in front of the node is told whether the node has endpoints of a Service, while it is asked for
// that.
//
// spec: WORK-4
func TestHealthCheckPort(t *testing.T) {
	w := newWorld(t)
	s := w.create("shop", "web", balanced(func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = "Local" }))
	url := fmt.Sprintf("http://127.0.0.1:%d/healthz", s.GetSpec().GetHealthCheckNodePort())
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, at string) (c net.Conn, err error) {
			return c, w.ns.Try(func() error { c, err = new(net.Dialer).DialContext(ctx, network, at); return err })
		}}}
	answers := func(want string) {
		t.Helper()
		w.eventually("the answer is "+want, func() bool {
			got := "nobody"
			if r, err := client.Get(url); err == nil {
				body, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				got = fmt.Sprint(r.StatusCode, " ", r.Header.Get("X-Load-Balancing-Endpoint-Weight"), " ",
					strings.TrimSpace(string(body)))
			}
			return got == want
		})
	}
	said := func(local int) string {
		return fmt.Sprintf(`{"service":{"namespace":"shop","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":true}`,
			local)
	}
	answers("503 0 " + said(0))
	eps := w.slice("web", "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4")
	here, there, no := "here", "there", false
	for i, node := range []*string{&here, &there, &here, &here} {
		eps.Endpoints[i].NodeName = node
	}
	eps.Endpoints[3].Conditions = &discoveryv1.EndpointConditions{Ready: &no}
	if _, err := w.api.EndpointSlices.Create(t.Context(), &discoveryv1rpc.CreateEndpointSliceRequest{
		Namespace: "shop", Object: eps,
	}); err != nil {
		t.Fatal(err)
	}
	answers("200 2 " + said(2))
	if _, err := w.api.Services.Patch(t.Context(), &metav1.PatchRequest{Namespace: "shop", Name: "web",
		PatchType: "application/merge-patch+json",
		Patch:     []byte(`{"spec":{"externalTrafficPolicy":"Cluster"}}`)}); err != nil {
		t.Fatal(err)
	}
	answers("nobody")
}
