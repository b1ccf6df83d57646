package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/nodeagent/network/proxy"
	"monoplane.dev/nodeagent/network/test/netnstest"
	"monoplane.dev/nodeagent/resolvconf"
	"monoplane.dev/rules/endpoint"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

const (
	nodeIP = "10.9.0.1"
	dnsIP  = "10.96.0.10"
)

// world is an API server, and a node namespace with a proxy.
type world struct {
	t     *testing.T
	api   *client.Client
	ns    *netnstest.NS
	proxy *proxy.Proxy
	ports chan []proxy.Port
	own   atomic.Value // The machine's addresses, as they were told last.
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ns: netnstest.New(t), ports: make(chan []proxy.Port, 100)}
	server := apitest.Start(t)
	server.Namespaces(t, "shop")
	w.api = server.Admin()
	w.ns.Up("lo", nodeIP+"/32", "10.1.0.1/32", "10.1.0.2/32")
	w.ns.Route("lo", "10.96.0.0/16", "", nodeIP)
	for _, ip := range []string{"10.1.0.1", "10.1.0.2"} {
		w.serve(ip)
	}
	cfg := proxy.Config{
		Client: server.Controller("nodenetwork"), NodeName: "here", NFTables: w.ns.NFTables, Netfilter: w.ns.Netfilter,
		PodRanges:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		Arrivals:   []netip.Addr{netip.MustParseAddr(arrival)},
		Resolver:   func() (resolvconf.Config, error) { return resolvconf.Config{}, nil },
		DNSService: netip.MustParseAddr("10.96.0.10"),
		Ports:      func(p []proxy.Port) { w.ports <- p },
		Own:        func(own []netip.Addr) { w.own.Store(own) },
		HealthListener: func(ctx context.Context, port uint16) (l net.Listener, err error) {
			return l, w.ns.Try(func() error {
				l, err = new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprint(":", port))
				return err
			})
		},
	}
	w.ns.Do(func() error {
		p, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", nodeIP+":53")
		if err != nil {
			return err
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", nodeIP+":53")
		cfg.Packets, cfg.Listeners = []net.PacketConn{p}, []net.Listener{l}
		return err
	})
	var err error
	if w.proxy, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return w
}

// serve answers connections with the address.
func (w *world) serve(ip string) {
	var l net.Listener
	w.ns.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(w.t.Context(), "tcp", ip+":8080")
		return err
	})
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(ip))
			_ = c.Close()
		}
	}()
}

// lookup asks the cluster's DNS by the address of its Service.
func (w *world) lookup(network, name string) *mdns.Msg {
	w.t.Helper()
	var out *mdns.Msg
	err := w.ns.Try(func() (err error) {
		c := mdns.Client{Net: network, Timeout: 10 * time.Second}
		out, _, err = c.ExchangeContext(w.t.Context(), new(mdns.Msg).SetQuestion(name, mdns.TypeA), dnsIP+":53")
		return err
	})
	if err != nil {
		w.t.Fatalf("%s over %s: %v", name, network, err)
	}
	return out
}

// reach connects and returns who answers.
func (w *world) reach(to string) (string, error) {
	var out string
	return out, w.ns.Try(func() error {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(w.t.Context(), "tcp", to)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		out = string(buf[:n])
		return err
	})
}

// eventually waits until f holds.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (w *world) create(namespace, name string, spec *corev1.ServiceSpec) *corev1.Service {
	w.t.Helper()
	s, err := w.api.Services.Create(w.t.Context(), &corev1rpc.CreateServiceRequest{
		Namespace: namespace, Object: &corev1.Service{Metadata: &metav1.ObjectMeta{Name: name}, Spec: spec},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) slice(service string, ips ...string) *discoveryv1.EndpointSlice {
	name, tcp, port := "http", "TCP", int32(8080)
	s := &discoveryv1.EndpointSlice{
		Metadata: &metav1.ObjectMeta{
			Namespace: "shop", Name: service, Labels: map[string]string{endpoint.ServiceName: service},
		},
		AddressType: "IPv4", Ports: []*discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}},
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, &discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// Services of the API are reached by name and address; a name that is answered can be reached.
func TestServicesOfTheAPI(t *testing.T) {
	w := newWorld(t)
	w.eventually("the proxy is ready", func() bool { return w.proxy.Ready() == nil })
	w.eventually("DNS is reached at its Service", func() bool {
		return w.ns.Try(func() error {
			// A connection that was begun before there were rules never comes about.
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", dnsIP+":53")
			if err == nil {
				_ = c.Close()
			}
			return err
		}) == nil
	})
	for _, network := range []string{"udp", "tcp"} {
		w.eventually("the DNS knows its own name", func() bool { // which comes after its rules
			return len(w.lookup(network, "kube-dns.kube-system.svc.cluster.local.").Answer) == 1
		})
	}
	for i := range 20 {
		name := fmt.Sprintf("web%d", i)
		if _, err := w.api.EndpointSlices.Create(t.Context(), &discoveryv1rpc.CreateEndpointSliceRequest{
			Namespace: "shop", Object: w.slice(name, "10.1.0.1"),
		}); err != nil {
			t.Fatal(err)
		}
		s := w.create("shop", name, &corev1.ServiceSpec{
			Type: "NodePort", Ports: []*corev1.ServicePort{{Name: "http", Port: 80}},
		})
		var found *mdns.Msg
		w.eventually("the name is known", func() bool {
			found = w.lookup("udp", name+".shop.svc.cluster.local.")
			return len(found.Answer) > 0
		})
		a, ok := found.Answer[0].(*mdns.A)
		if !ok || a.A.String() != s.GetSpec().GetClusterIP() {
			t.Fatalf("%s is %v, and has %s", name, found.Answer[0], s.GetSpec().GetClusterIP())
		}
		if who, err := w.reach(a.A.String() + ":80"); err != nil || who != "10.1.0.1" { // at once: no name before
			t.Fatalf("%s: reached %q: %v", name, who, err)
		}
		if _, err := w.api.Services.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "shop", Name: name}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the name is gone", func() bool {
			return w.lookup("udp", name+".shop.svc.cluster.local.").Rcode == mdns.RcodeNameError
		})
	}
	told := false
	for len(w.ports) > 0 {
		for _, p := range <-w.ports {
			told = told || p.Network == "tcp" && p.Listen.Port() >= 30000
		}
	}
	if !told {
		t.Error("nobody was told of the node ports")
	}
}

// A Service that becomes another name, and a Service with an address again, is what it is now, and its name leads
// nowhere before that can be reached.
func TestTypesOfAService(t *testing.T) {
	w := newWorld(t)
	w.eventually("the proxy is ready", func() bool { return w.proxy.Ready() == nil })
	for name, pod := range map[string]string{"web": "10.1.0.1", "other": "10.1.0.2"} {
		if _, err := w.api.EndpointSlices.Create(t.Context(), &discoveryv1rpc.CreateEndpointSliceRequest{
			Namespace: "shop", Object: w.slice(name, pod),
		}); err != nil {
			t.Fatal(err)
		}
	}
	ports := []*corev1.ServicePort{{Name: "http", Port: 80}}
	_ = w.create("shop", "other", &corev1.ServiceSpec{Ports: ports})
	s := w.create("shop", "web", &corev1.ServiceSpec{Type: "NodePort", Ports: ports})
	const name = "web.shop.svc.cluster.local."
	becomes := func(patch, who string, records int) (ip string) {
		t.Helper()
		if patch != "" {
			var err error
			s, err = w.api.Services.Patch(t.Context(), &metav1.PatchRequest{Namespace: "shop", Name: "web",
				PatchType: "application/merge-patch+json", Patch: []byte(patch)})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.eventually("the name has what it should", func() bool {
			all := w.lookup("udp", name).Answer
			if len(all) != records {
				return false
			}
			a, ok := all[records-1].(*mdns.A)
			if ok {
				ip = a.A.String()
			}
			return ok && (records > 1 || ip == s.GetSpec().GetClusterIP())
		})
		if got, err := w.reach(ip + ":80"); err != nil || got != who {
			t.Errorf("after %s, by %s: reached %q, %v; want %s", patch, ip, got, err, who)
		}
		return ip
	}
	before := becomes("", "10.1.0.1", 1)
	for range 3 {
		becomes(`{"spec":{"type":"ExternalName","externalName":"other.shop.svc.cluster.local"}}`, "10.1.0.2", 2)
		if w.ns.Try(func() error { // Whose refusal is the node namespace's.
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", before+":80")
			if err == nil {
				_ = c.Close()
			}
			return err
		}) == nil {
			t.Errorf("somebody is reached at the address of before, %s", before)
		}
		before = becomes(`{"spec":{"type":"LoadBalancer","externalName":null}}`, "10.1.0.1", 1)
	}
}
