package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/dns"
	"monoplane.dev/nodeagent/resolvconf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server on the loopback, and what it forwards to.
type world struct {
	t    testing.TB
	zone *dns.Zone
	addr string
	// asked counts the questions that reached the other resolver; upstream answers them.
	asked    atomic.Int64
	upstream atomic.Pointer[func(q mdns.Question) *mdns.Msg]
}

func (w *world) knows(f func(q mdns.Question) *mdns.Msg) { w.upstream.Store(&f) }

func newWorld(t testing.TB) *world {
	w := &world{t: t, zone: dns.NewZone("cluster.local")}
	other := w.resolver()
	server, err := dns.NewServer(dns.Config{Zone: w.zone, Resolver: func() (resolvconf.Config, error) {
		return resolvconf.Config{Servers: []string{other}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.addr = serve(t, server)
	return w
}

// serve runs a server on one port of the loopback for UDP and TCP until the test ends.
func serve(t testing.TB, server *dns.Server) string {
	t.Helper()
	p, l := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, []net.PacketConn{p}, []net.Listener{l}) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p.LocalAddr().String()
}

func sockets(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 { // the port may be taken for TCP
		p, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", p.LocalAddr().String())
		if err == nil {
			return p, l
		}
		_ = p.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// resolver is another resolver.
func (w *world) resolver() string {
	p, l := sockets(w.t)
	handler := mdns.HandlerFunc(func(rw mdns.ResponseWriter, m *mdns.Msg) {
		if m.Question[0].Qtype == mdns.TypeHINFO { // looking for loops
			_ = rw.WriteMsg(new(mdns.Msg).SetRcode(m, mdns.RcodeNameError))
			return
		}
		w.asked.Add(1)
		out := new(mdns.Msg).SetReply(m)
		if f := w.upstream.Load(); f != nil {
			if a := (*f)(m.Question[0]); a != nil {
				out.Rcode, out.Answer, out.Ns = a.Rcode, a.Answer, a.Ns
			}
		}
		if _, udp := rw.LocalAddr().(*net.UDPAddr); udp {
			out.Truncate(mdns.MinMsgSize)
		}
		_ = rw.WriteMsg(out)
	})
	for _, s := range []*mdns.Server{{PacketConn: p, Handler: handler}, {Listener: l, Handler: handler}} {
		started, done := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(done)
			_ = s.ActivateAndServe()
		}()
		<-started
		w.t.Cleanup(func() {
			_ = s.Shutdown()
			<-done
		})
	}
	return p.LocalAddr().String()
}

func (w *world) ask(network, name string, qtype uint16, change ...func(*mdns.Msg)) *mdns.Msg {
	w.t.Helper()
	m := new(mdns.Msg).SetQuestion(name, qtype)
	for _, f := range change {
		f(m)
	}
	c := mdns.Client{Net: network, Timeout: 20 * time.Second}
	out, _, err := c.ExchangeContext(w.t.Context(), m, w.addr)
	if err != nil {
		w.t.Fatalf("%s %s over %s: %v", name, mdns.TypeToString[qtype], network, err)
	}
	return out
}

// texts returns the records of an answer without their TTL and class.
func texts(rrs []mdns.RR) []string {
	var out []string
	for _, rr := range rrs {
		if rr.Header().Rrtype == mdns.TypeOPT {
			continue
		}
		h := rr.Header()
		out = append(out, h.Name+" "+mdns.TypeToString[h.Rrtype]+" "+rr.String()[len(h.String()):])
	}
	slices.Sort(out)
	return out
}

func svc(name, kind string, ips ...string) *corev1.Service {
	s := &corev1.Service{
		Metadata: &metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: &corev1.ServiceSpec{Type: kind, ClusterIP: ips[0], ClusterIPs: ips, Ports: []*corev1.ServicePort{
			{Name: "http", Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53},
		}},
	}
	return s
}

func slice(family string, ready bool, ends map[string]string) *discoveryv1.EndpointSlice {
	name, protocol, port := "http", "TCP", int32(8080)
	s := &discoveryv1.EndpointSlice{
		Metadata: &metav1.ObjectMeta{Namespace: "shop", Name: "s"}, AddressType: family,
		Ports: []*discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	for ip, host := range ends {
		e := &discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: &discoveryv1.EndpointConditions{Ready: &ready},
		}
		if host != "" {
			e.Hostname = &host
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func (w *world) fill() {
	w.zone.SetNamespace("shop", true)
	w.zone.Set(svc("web", "ClusterIP", "10.96.0.10", "fd00:96::10"), nil)
	w.zone.Set(svc("db", "ClusterIP", "None"), []*discoveryv1.EndpointSlice{
		slice("IPv4", true, map[string]string{"10.1.0.1": "db-0", "10.1.0.2": ""}),
		slice("IPv6", true, map[string]string{"fd00:1::1": "db-0"}),
		slice("IPv4", false, map[string]string{"10.1.0.3": "db-3"}),
	})
	external := svc("far", "ExternalName", "")
	external.Spec.ExternalName = "example.org"
	w.zone.Set(external, nil)
	near := svc("near", "ExternalName", "")
	near.Spec.ExternalName = "WEB.shop.svc.cluster.local"
	w.zone.Set(near, nil)
	w.zone.Open()
}

// The records of the Kubernetes DNS specification, over UDP and TCP.
func TestRecords(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.knows(func(q mdns.Question) *mdns.Msg {
		rr, _ := mdns.NewRR(q.Name + " 60 IN A 93.184.216.34")
		return &mdns.Msg{Answer: []mdns.RR{rr}}
	})
	const d = ".cluster.local."
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
	}{
		{"web.shop.svc" + d, mdns.TypeA, 0, []string{"web.shop.svc" + d + " A 10.96.0.10"}},
		{"wEb.Shop.svc" + d, mdns.TypeA, 0, []string{"wEb.Shop.svc" + d + " A 10.96.0.10"}},
		{"web.shop.svc" + d, mdns.TypeAAAA, 0, []string{"web.shop.svc" + d + " AAAA fd00:96::10"}},
		{"web.shop.svc" + d, mdns.TypeMX, 0, nil},
		{"_http._tcp.web.shop.svc" + d, mdns.TypeSRV, 0,
			[]string{"_http._tcp.web.shop.svc" + d + " SRV 0 100 80 web.shop.svc" + d}},
		{"_tcp.web.shop.svc" + d, mdns.TypeSRV, 0, nil},
		{"_dns._udp.web.shop.svc" + d, mdns.TypeSRV, 0,
			[]string{"_dns._udp.web.shop.svc" + d + " SRV 0 100 53 web.shop.svc" + d}},
		{"_dns._tcp.web.shop.svc" + d, mdns.TypeSRV, mdns.RcodeNameError, nil},
		{"db.shop.svc" + d, mdns.TypeA, 0,
			[]string{"db.shop.svc" + d + " A 10.1.0.1", "db.shop.svc" + d + " A 10.1.0.2"}},
		{"db-0.db.shop.svc" + d, mdns.TypeA, 0, []string{"db-0.db.shop.svc" + d + " A 10.1.0.1"}},
		{"db-0.db.shop.svc" + d, mdns.TypeAAAA, 0, []string{"db-0.db.shop.svc" + d + " AAAA fd00:1::1"}},
		{"10-1-0-2.db.shop.svc" + d, mdns.TypeA, 0, []string{"10-1-0-2.db.shop.svc" + d + " A 10.1.0.2"}},
		{"db-3.db.shop.svc" + d, mdns.TypeA, mdns.RcodeNameError, nil},
		{"_http._tcp.db.shop.svc" + d, mdns.TypeSRV, 0, []string{
			"_http._tcp.db.shop.svc" + d + " SRV 0 50 8080 10-1-0-2.db.shop.svc" + d,
			"_http._tcp.db.shop.svc" + d + " SRV 0 50 8080 db-0.db.shop.svc" + d,
		}},
		{"far.shop.svc" + d, mdns.TypeCNAME, 0, []string{"far.shop.svc" + d + " CNAME example.org."}},
		{"far.shop.svc" + d, mdns.TypeA, 0,
			[]string{"example.org. A 93.184.216.34", "far.shop.svc" + d + " CNAME example.org."}},
		{"near.shop.svc" + d, mdns.TypeA, 0,
			[]string{"near.shop.svc" + d + " CNAME web.shop.svc" + d, "web.shop.svc" + d + " A 10.96.0.10"}},
		{"none.shop.svc" + d, mdns.TypeA, mdns.RcodeNameError, nil},
		{"shop.svc" + d, mdns.TypeA, 0, nil},
		{"svc" + d, mdns.TypeA, 0, nil},
		{"10-1-0-9.shop.pod" + d, mdns.TypeA, 0, []string{"10-1-0-9.shop.pod" + d + " A 10.1.0.9"}},
		{"fd00-1--9.shop.pod" + d, mdns.TypeAAAA, 0, []string{"fd00-1--9.shop.pod" + d + " AAAA fd00:1::9"}},
		{"10-1-0-9.nowhere.pod" + d, mdns.TypeA, mdns.RcodeNameError, nil},
		{"x.shop.pod" + d, mdns.TypeA, mdns.RcodeNameError, nil},
		{"10.0.96.10.in-addr.arpa.", mdns.TypePTR, 0, []string{"10.0.96.10.in-addr.arpa. PTR web.shop.svc" + d}},
		{"1.0.1.10.in-addr.arpa.", mdns.TypePTR, 0, []string{"1.0.1.10.in-addr.arpa. PTR db-0.db.shop.svc" + d}},
		{reverse(t, "fd00:1::1"), mdns.TypePTR, 0, []string{reverse(t, "fd00:1::1") + " PTR db-0.db.shop.svc" + d}},
		{"dns-version" + d, mdns.TypeTXT, 0, []string{"dns-version" + d + ` TXT "1.1.0"`}},
		{"example.com.", mdns.TypeA, 0, []string{"example.com. A 93.184.216.34"}},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got := w.ask(network, c.name, c.qtype)
			if got.Rcode != c.rcode || !slices.Equal(texts(got.Answer), c.want) {
				t.Errorf("%s %s over %s: %s %v\nwant %s %v", c.name, mdns.TypeToString[c.qtype], network,
					mdns.RcodeToString[got.Rcode], texts(got.Answer), mdns.RcodeToString[c.rcode], c.want)
			}
			if len(got.Answer) == 0 && (len(got.Ns) != 1 || got.Ns[0].Header().Rrtype != mdns.TypeSOA) {
				t.Errorf("%s: an answer without records has no SOA: %v", c.name, got.Ns)
			}
		}
	}
}

func reverse(t *testing.T, ip string) string {
	name, err := mdns.ReverseAddr(ip)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// What is taken away is gone, with the names in between, and what is shared stays.
func TestRecordsGo(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.zone.Set(svc("db", "ClusterIP", "None"), []*discoveryv1.EndpointSlice{
		slice("IPv4", true, map[string]string{"10.1.0.2": ""}),
	})
	w.zone.Delete(cache.Key{Namespace: "shop", Name: "web"})
	w.zone.SetNamespace("shop", false)
	for name, rcode := range map[string]int{
		"db-0.db.shop.svc.cluster.local.": mdns.RcodeNameError, "db.shop.svc.cluster.local.": mdns.RcodeSuccess,
		"web.shop.svc.cluster.local.": mdns.RcodeNameError, "_tcp.web.shop.svc.cluster.local.": mdns.RcodeNameError,
		"shop.svc.cluster.local.": mdns.RcodeSuccess, "shop.pod.cluster.local.": mdns.RcodeNameError,
	} {
		if got := w.ask("udp", name, mdns.TypeA); got.Rcode != rcode {
			t.Errorf("%s: %s", name, mdns.RcodeToString[got.Rcode])
		}
	}
	for _, name := range []string{"db", "far", "near"} {
		w.zone.Delete(cache.Key{Namespace: "shop", Name: name})
	}
	if got := w.ask("udp", "shop.svc.cluster.local.", mdns.TypeA); got.Rcode != mdns.RcodeNameError {
		t.Errorf("a namespace that is gone: %s", mdns.RcodeToString[got.Rcode])
	}
}

// Before the Services are known nobody is told that a name does not exist.
func TestNotReady(t *testing.T) {
	w := newWorld(t)
	if got := w.ask("udp", "web.shop.svc.cluster.local.", mdns.TypeA); got.Rcode != mdns.RcodeServerFailure {
		t.Errorf("answered %s", mdns.RcodeToString[got.Rcode])
	}
}

// The resolver of Go finds names by search paths, services and addresses.
func TestResolverOfGo(t *testing.T) {
	w := newWorld(t)
	w.fill()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, w.addr)
	}}
	addrs, err := r.LookupNetIP(t.Context(), "ip4", "db.shop.svc.cluster.local")
	if err != nil || len(addrs) != 2 {
		t.Errorf("found %v: %v", addrs, err)
	}
	_, srv, err := r.LookupSRV(t.Context(), "http", "tcp", "db.shop.svc.cluster.local")
	if err != nil || len(srv) != 2 || srv[0].Port != 8080 {
		t.Errorf("found %v: %v", srv, err)
	}
	names, err := r.LookupAddr(t.Context(), "10.96.0.10")
	if err != nil || !slices.Equal(names, []string{"web.shop.svc.cluster.local."}) {
		t.Errorf("found %v: %v", names, err)
	}
}

// An answer that does not fit is cut for UDP, at what the asker takes, and whole over TCP.
func TestTruncation(t *testing.T) {
	w := newWorld(t)
	ends := map[string]string{}
	for i := range 200 {
		ends[netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}).String()] = ""
	}
	w.zone.Set(svc("db", "ClusterIP", "None"), []*discoveryv1.EndpointSlice{slice("IPv4", true, ends)})
	w.zone.Open()
	const name = "db.shop.svc.cluster.local."
	for _, size := range []uint16{0, 512, 900, 4096} {
		got := w.ask("udp", name, mdns.TypeA, func(m *mdns.Msg) {
			if size > 0 {
				m.SetEdns0(size, false)
			}
		})
		got.Compress = true
		if most := min(max(int(size), 512), 1232); !got.Truncated || got.Len() > most || len(got.Answer) == 0 {
			t.Errorf("with room for %d: truncated %v, %d bytes, %d records", size, got.Truncated, got.Len(), len(got.Answer))
		}
		if (got.IsEdns0() != nil) != (size > 0) {
			t.Errorf("with room for %d: %v", size, got.IsEdns0())
		}
	}
	if got := w.ask("tcp", name, mdns.TypeA); got.Truncated || len(got.Answer) != 200 {
		t.Errorf("over TCP: truncated %v, %d records", got.Truncated, len(got.Answer))
	}
}

// Answers of other resolvers are kept, those that something does not exist too, failures are not.
func TestCache(t *testing.T) {
	w := newWorld(t)
	w.zone.Open()
	soa, _ := mdns.NewRR("org. 60 IN SOA a.org. b.org. 1 2 3 4 60")
	w.knows(func(q mdns.Question) *mdns.Msg {
		switch q.Name {
		case "big.org.":
			m := &mdns.Msg{}
			for i := range 100 {
				rr, _ := mdns.NewRR(fmt.Sprintf("%s 60 IN A 10.9.9.%d", q.Name, i))
				m.Answer = append(m.Answer, rr)
			}
			return m
		case "none.org.":
			return &mdns.Msg{MsgHdr: mdns.MsgHdr{Rcode: mdns.RcodeNameError}, Ns: []mdns.RR{soa}}
		case "short.org.":
			rr, _ := mdns.NewRR(q.Name + " 0 IN A 10.9.9.9")
			return &mdns.Msg{Answer: []mdns.RR{rr}}
		default:
			return &mdns.Msg{MsgHdr: mdns.MsgHdr{Rcode: mdns.RcodeServerFailure}}
		}
	})
	for _, c := range []struct {
		name           string
		rcode, answers int
		asked          int64
	}{
		{"big.org.", mdns.RcodeSuccess, 100, 2}, // UDP, then TCP; afterwards none
		{"none.org.", mdns.RcodeNameError, 0, 1},
		{"short.org.", mdns.RcodeSuccess, 1, 3},
		{"fails.org.", mdns.RcodeServerFailure, 0, 3},
	} {
		before := w.asked.Load()
		for range 3 {
			got := w.ask("tcp", c.name, mdns.TypeA)
			if got.Rcode != c.rcode || len(got.Answer) != c.answers {
				t.Errorf("%s: %s, %d records", c.name, mdns.RcodeToString[got.Rcode], len(got.Answer))
			}
		}
		if n := w.asked.Load() - before; n != c.asked {
			t.Errorf("%s: the other resolver was asked %d times, want %d", c.name, n, c.asked)
		}
	}
}

// A server that is its own resolver notices, and does not ask in a circle.
func TestLoop(t *testing.T) {
	zone := dns.NewZone("cluster.local")
	zone.Open()
	w := &world{t: t, zone: zone}
	server, err := dns.NewServer(dns.Config{Zone: zone, Resolver: func() (resolvconf.Config, error) {
		return resolvconf.Config{Servers: []string{w.addr}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	p, l := sockets(t)
	w.addr = p.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, []net.PacketConn{p}, []net.Listener{l}) }()
	if got := w.ask("udp", "example.org.", mdns.TypeA); got.Rcode != mdns.RcodeServerFailure {
		t.Errorf("answered %s", mdns.RcodeToString[got.Rcode])
	}
	cancel()
	<-done
}

// What is not a question of the kind that is answered here is refused, in the words of the protocol.
func TestOddQuestions(t *testing.T) {
	w := newWorld(t)
	w.fill()
	const name = "web.shop.svc.cluster.local."
	for want, change := range map[int]func(*mdns.Msg){
		mdns.RcodeNotImplemented: func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify },
		mdns.RcodeFormatError:    func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		mdns.RcodeRefused:        func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS },
		mdns.RcodeBadVers:        func(m *mdns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) },
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := w.ask(network, name, mdns.TypeA, change); got.Rcode != want {
				t.Errorf("over %s: %s, want %s", network, mdns.RcodeToString[got.Rcode], mdns.RcodeToString[want])
			}
		}
	}
}

// FuzzMessage sends any bytes: whatever comes back is an answer to them that fits.
func FuzzMessage(f *testing.F) {
	zone := dns.NewZone("cluster.local")
	zone.SetNamespace("shop", true)
	zone.Set(svc("web", "ClusterIP", "10.96.0.10", "fd00:96::10"), nil)
	zone.Open()
	server, err := dns.NewServer(dns.Config{Zone: zone})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"web.shop.svc.cluster.local.", "1-2-3-4.shop.pod.cluster.local.", "a.", "x.ip6.arpa."} {
		b, _ := new(mdns.Msg).SetQuestion(name, mdns.TypeANY).Pack()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		answers := make(chan []byte, 1)
		server.HandlePacket(t.Context(), netip.Addr{}, b, func(answer []byte) { answers <- answer })
		select {
		case a := <-answers:
			m := new(mdns.Msg)
			if err := m.Unpack(a); err != nil || !m.Response || len(a) > 1232 || a[0] != b[0] || a[1] != b[1] {
				t.Errorf("answered %d bytes: %v %v", len(a), m, err)
			}
		default: // nothing, or later
		}
	})
}

// BenchmarkAnswer is a question over UDP and its answer.
func BenchmarkAnswer(b *testing.B) {
	w := newWorld(b)
	w.fill()
	b.RunParallel(func(pb *testing.PB) {
		c, err := mdns.Dial("udp", w.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		for pb.Next() {
			if err := c.WriteMsg(new(mdns.Msg).SetQuestion("web.shop.svc.cluster.local.", mdns.TypeA)); err != nil {
				b.Fatal(err)
			}
			if _, err := c.ReadMsg(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Neither connections that one client leaves idle nor its questions that nobody answers keep others from asking.
//
// spec: NET-1
func TestClientsShare(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.knows(func(q mdns.Question) *mdns.Msg {
		if strings.HasSuffix(q.Name, ".slow.example.") {
			<-release
		}
		rr, err := mdns.NewRR(q.Name + " 60 IN A 192.0.2.1")
		if err != nil {
			t.Error(err)
		}
		return &mdns.Msg{Answer: []mdns.RR{rr}}
	})
	defer close(release)
	answered := func(network, name string) {
		t.Helper()
		if got := w.ask(network, name, mdns.TypeA); got.Rcode != mdns.RcodeSuccess || len(got.Answer) != 1 {
			t.Errorf("over %s another client gets %s", network, got)
		}
	}
	for range 256 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Minute}
		c, err := d.DialContext(t.Context(), "tcp", w.addr)
		if errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	answered("tcp", "a.example.")

	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	raw, err := d.DialContext(t.Context(), "udp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &mdns.Conn{Conn: raw}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	send := func(name string) uint16 {
		m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
		if err := c.WriteMsg(m); err != nil {
			t.Fatal(err)
		}
		return m.Id
	}
	refused := 0
	for i := range 640 {
		send(fmt.Sprint(i, ".slow.example."))
		if i%32 < 31 {
			continue
		}
		// An answer at once shows that the server has read what came before, so that no packet is lost for want of room.
		for id := send("a.cluster.local."); ; refused++ {
			got, err := c.ReadMsg()
			if err != nil {
				t.Fatal(err)
			}
			if got.Id == id {
				break
			}
		}
	}
	if refused == 0 {
		t.Error("all questions of the client wait")
	}
	answered("udp", "b.example.")
	answered("tcp", "c.example.")
}
