package services_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/network/services"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

// Every kind of client reaches every endpoint of a Service and nothing else, in both families and over TCP and UDP.
func TestClusterIP(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10")
	w.apply(change(s, ready(1, 2, 3)))
	for _, c := range []struct {
		ns      *netnstest.NS
		from    [2]string
		network string
	}{
		{w.clients, [2]string{"10.1.1.5", "fd00:1:0:1::5"}, "tcp"},
		{w.clients, [2]string{"10.1.1.5", "fd00:1:0:1::5"}, "udp"},
		{w.outside, [2]string{"10.2.0.1", "fd00:2::1"}, "tcp"}, {w.outside, [2]string{"10.2.0.1", "fd00:2::1"}, "udp"},
		{w.node, [2]string{nodeIP, nodeIP6}, "tcp"}, {w.node, [2]string{nodeIP, nodeIP6}, "udp"},
	} {
		for i, ip := range s.GetSpec().GetClusterIPs() {
			seen := map[string]bool{}
			for range 200 {
				pod, client, refused := w.answer(c.ns, c.network, c.from[i], net.JoinHostPort(ip, "80"))
				if refused || client != c.from[i] {
					t.Fatalf("%s from %s to %s: refused %v, the pod sees %q", c.network, c.from[i], ip, refused, client)
				}
				if seen[pod] = true; len(seen) == 3 {
					break
				}
			}
			for n := range 3 {
				pod := [2]string{fmt.Sprintf("10.1.0.%d", n+1), fmt.Sprintf("fd00:1::%d", n+1)}[i]
				if !seen[pod] || len(seen) != 3 {
					t.Errorf("%s from %s to %s reached %v", c.network, c.from[i], ip, seen)
				}
			}
		}
	}
}

// A port of a Service that pods give a number each leads to every pod at its own, whichever slice says it.
func TestNumbersOfANamedPort(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10")
	one, two := slicesOf(s, ready(1)), slicesOf(s, ready(2))
	for i, slice := range two {
		for _, p := range slice.GetPorts() {
			number := int32(9090)
			p.Port = &number
		}
		slice.Metadata.Name += "-two"
		at := slice.GetEndpoints()[0].GetAddresses()[0]
		w.pods.Serve(net.JoinHostPort(at, "9090"), func(client, said string) string {
			return fmt.Sprint("9090 ", client, " ", said)
		})
		one = append(one, two[i])
	}
	w.apply(services.Change{Service: key(s), Rules: services.Compile(services.Node{Name: nodeName}, s, one)})
	for _, ip := range s.GetSpec().GetClusterIPs() {
		for _, network := range []string{"tcp", "udp"} {
			seen := map[string]bool{}
			for range 200 {
				pod, _, refused := w.answer(w.clients, network, "", net.JoinHostPort(ip, "80"))
				if refused {
					t.Fatalf("%s to %s: refused", network, ip)
				}
				if seen[pod] = true; len(seen) == 2 {
					break
				}
			}
			if len(seen) != 2 || !seen["9090"] {
				t.Errorf("%s to %s reached %v", network, ip, seen)
			}
		}
	}
}

// A pod reaches itself through its Service.
func TestHairpin(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10")
	w.apply(change(s, ready(1)))
	for _, network := range []string{"tcp", "udp"} {
		for from, ip := range map[string]string{"10.1.0.1": "10.96.0.10", "fd00:1::1": "fd00:96::10"} {
			pod, client, refused := w.answer(w.pods, network, from, net.JoinHostPort(ip, "80"))
			if refused || pod != from || client == from {
				t.Errorf("%s from %s: refused %v, reached %s, which sees %s", network, from, refused, pod, client)
			}
		}
	}
}

// A datagram that the client's link takes and the endpoint's does not is lost, and the client, who is told so about
// the address that it knows, sends the next one in fragments.
func TestDatagramsTooLong(t *testing.T) {
	w := newWorld(t)
	w.apply(change(service("web", "10"), ready(1)))
	for ns, name := range map[*netnstest.NS]string{w.node: "clients", w.clients: "eth0"} {
		ns.Do(func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(link, 9000)
		})
	}
	for from, ip := range map[string]string{"10.1.1.1": "10.96.0.10", "fd00:1:0:1::1": "fd00:96::10"} {
		c, err := w.clients.Dial("udp", from, net.JoinHostPort(ip, "80"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		told, answered := false, false
		for end := time.Now().Add(30 * time.Second); !answered && time.Now().Before(end); {
			_, err := c.Write(make([]byte, 4000))
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, err = c.Read(make([]byte, 256))
				answered = err == nil
			}
			told = told || errors.Is(err, syscall.EMSGSIZE)
		}
		if !told || !answered {
			t.Errorf("4000 bytes to %s: told of a smaller link %v, answered %v", ip, told, answered)
		}
	}
}

// Where there is nothing to reach, clients learn it at once, from everywhere.
func TestRefusal(t *testing.T) {
	w := newWorld(t)
	empty, other := service("empty", "10"), service("other", "11")
	w.apply(change(empty, nil), change(other, ready(1)))
	for _, ns := range []*netnstest.NS{w.clients, w.outside, w.node} {
		for _, network := range []string{"tcp", "udp"} {
			for _, to := range []string{"10.96.0.10:80", "[fd00:96::10]:80", "10.96.0.11:81", "[fd00:96::11]:81"} {
				if pod, _, refused := w.answer(ns, network, "", to); !refused {
					t.Errorf("%s to %s reached %q", network, to, pod)
				}
			}
		}
	}
	w.apply(change(empty, ready(2)))
	if pod, _, _ := w.answer(w.clients, "tcp", "", "10.96.0.10:80"); pod != "10.1.0.2" {
		t.Errorf("reached %q", pod)
	}
}

// Node ports, at the machine's addresses too, external addresses and those of load balancers lead to endpoints and
// keep the client's address, and so does an address that stands for one of them, at which nothing else is reached.
func TestOutside(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10", func(s *corev1.Service) {
		s.Spec.Type = "LoadBalancer"
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30080, 30080
		s.Spec.ExternalIPs = []string{"192.0.2.1"}
		s.Spec.ExternalTrafficPolicy = "Local"
		s.Status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: []*corev1.LoadBalancerIngress{{Ip: "192.0.2.2"}}}
	})
	ends := append(ready(1), end{pod: 2, ready: true, serving: true, elsewhere: true})
	change := func(s *corev1.Service, ends []end) services.Change {
		n := services.Node{Name: nodeName, Arrivals: map[netip.Addr]netip.Addr{
			netip.MustParseAddr("192.0.2.2"): netip.MustParseAddr("10.8.0.0"),
		}, Own: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("fd00:9::9")}}
		return services.Change{Service: key(s), Rules: services.Compile(n, s, slicesOf(s, ends))}
	}
	w.apply(change(s, ends))
	for _, to := range []string{
		nodeIP + ":30080", "[" + nodeIP6 + "]:30080", "192.0.2.9:30080", "[fd00:9::9]:30080", "192.0.2.1:80",
		"192.0.2.2:80", "10.8.0.0:80",
	} {
		for range 20 {
			from := map[bool]string{false: "10.2.0.3", true: "fd00:2::3"}[to[0] == '[']
			pod, client, refused := w.answer(w.outside, "tcp", from, to)
			if refused || client != from || pod != "10.1.0.1" && pod != "fd00:1::1" {
				t.Fatalf("to %s: refused %v, reached %s, which sees %s", to, refused, pod, client)
			}
		}
	}
	for _, to := range []string{"192.0.2.2:80", "192.0.2.9:30080"} {
		seen := map[string]bool{}
		for range 200 { // from inside all endpoints count
			pod, _, _ := w.answer(w.clients, "tcp", "10.1.1.5", to)
			if seen[pod] = true; len(seen) == 2 {
				break
			}
		}
		if len(seen) != 2 {
			t.Errorf("by %s a pod reached %v", to, seen)
		}
	}
	if pod, _, refused := w.answer(w.outside, "tcp", "10.2.0.3", "10.8.0.0:81"); !refused {
		t.Errorf("a port that nobody has reached %q", pod)
	}
	s.Spec.LoadBalancerSourceRanges = []string{"10.2.0.2/31", "10.2.0.0/32", "fd00:2::/64"}
	w.apply(change(s, ends))
	for _, to := range []string{"192.0.2.2:80", "10.8.0.0:80"} {
		if pod, _, _ := w.answer(w.outside, "tcp", "10.2.0.3", to); pod != "10.1.0.1" {
			t.Errorf("an allowed client of %s reached %q", to, pod)
		}
	}
	// Who is not allowed is led to a chain that drops.
	chains := map[string]bool{}
	for _, c := range change(s, ends).Rules.Claims {
		if a := c.Entry.Addr.String(); a == "192.0.2.2" || a == "10.8.0.0" {
			chains[c.Chain] = strings.HasPrefix(c.Chain, "firewall/")
		}
	}
	if len(chains) != 2 || slices.Contains(slices.Collect(maps.Values(chains)), false) { // Of TCP and of UDP.
		t.Errorf("the address of a load balancer, and that which stands for it, lead to %v", chains)
	}
	w.apply(services.Change{Service: key(s)})
}

// A client that is to be remembered keeps its endpoint while that is one, whichever way it comes.
func TestAffinity(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10", func(s *corev1.Service) {
		s.Spec.SessionAffinity, s.Spec.Type, s.Spec.Ports[0].NodePort = "ClientIP", "NodePort", 30080
	})
	w.apply(change(s, ready(1, 2, 3, 4)))
	for client := range 4 {
		from := fmt.Sprintf("10.2.0.%d", client+1)
		first, _, _ := w.answer(w.outside, "tcp", from, "10.96.0.10:80")
		for range 10 {
			for _, to := range []string{"10.96.0.10:80", nodeIP + ":30080"} {
				if pod, _, _ := w.answer(w.outside, "tcp", from, to); pod != first {
					t.Fatalf("%s reached %s, after %s", from, pod, first)
				}
			}
		}
		// Each port and family remembers for itself.
		for _, c := range []struct{ network, from, to string }{
			{"udp", from, "10.96.0.10:80"}, {"tcp", fmt.Sprintf("fd00:2::%d", client+1), "[fd00:96::10]:80"},
			{"udp", fmt.Sprintf("fd00:2::%d", client+1), "[fd00:96::10]:80"},
		} {
			first, _, _ := w.answer(w.outside, c.network, c.from, c.to)
			for range 10 {
				if pod, _, _ := w.answer(w.outside, c.network, c.from, c.to); pod != first {
					t.Fatalf("%s from %s reached %s, after %s", c.network, c.from, pod, first)
				}
			}
		}
		// It goes on when others come and go and when the process is restarted, and ends when the endpoint goes.
		var gone int
		_, _ = fmt.Sscanf(first, "10.1.0.%d", &gone)
		w.apply(change(s, ready(gone, 5, 6)))
		w.applier = w.restarted()
		w.apply(change(s, ready(gone, 5)))
		if pod, _, _ := w.answer(w.outside, "tcp", from, "10.96.0.10:80"); pod != first {
			t.Fatalf("%s reached %s, after %s", from, pod, first)
		}
		rest := []int{1, 2, 3, 4}
		rest[gone-1] = 6
		w.apply(change(s, ready(rest...)))
		second, _, _ := w.answer(w.outside, "tcp", from, "10.96.0.10:80")
		for range 10 {
			if pod, _, _ := w.answer(w.outside, "tcp", from, "10.96.0.10:80"); pod != second || pod == first {
				t.Fatalf("%s reached %s, after %s was gone, and %s", from, pod, first, second)
			}
		}
		w.apply(change(s, ready(1, 2, 3, 4)))
	}
}

// A client is remembered for as long as the Service says.
func TestAffinityEnds(t *testing.T) {
	w := newWorld(t)
	seconds := int32(77)
	s := service("web", "10", func(s *corev1.Service) {
		s.Spec.SessionAffinity = "ClientIP"
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
		}
	})
	w.apply(change(s, ready(1, 2)))
	w.answer(w.outside, "tcp", "10.2.0.1", "10.96.0.10:80")
	w.answer(w.outside, "tcp", "fd00:2::1", "[fd00:96::10]:80")
	var left []time.Duration
	w.node.Rules(func(conn *nftables.Conn) error {
		sets, err := conn.GetSets(&nftables.Table{Name: services.TableName, Family: nftables.TableFamilyINet})
		for _, set := range sets {
			if !strings.HasPrefix(set.Name, "affinity/") {
				continue
			}
			elements, e := conn.GetSetElements(set)
			err = errors.Join(err, e)
			for _, e := range elements {
				left = append(left, e.Expires)
			}
		}
		return err
	})
	ends := func(in time.Duration) bool { return in > 17*time.Second && in <= 77*time.Second }
	if len(left) != 2 || !ends(left[0]) || !ends(left[1]) {
		t.Errorf("clients are remembered for %v more; want two, for 77 s since they connected", left)
	}
}

// A UDP flow does not go on to an endpoint that is gone, and starts to reach the first one that comes.
func TestFlowsAreForgotten(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10")
	w.apply(change(s, ready(1)))
	for _, to := range []string{"10.96.0.10:80", "[fd00:96::10]:80"} {
		c, err := w.clients.Dial("udp", "", to)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			w.apply(change(s, ready(n+1)))
			pod, _, err := ask(c)
			if want := net.ParseIP(pod); err != nil || int(want[15]) != n+1 {
				t.Errorf("to %s: reached %q instead of endpoint %d: %v", to, pod, n+1, err)
			}
		}
		w.apply(change(s, ready(1)))
		_ = c.Close()
	}
}

// Connections live on while rules change, while the process is restarted, and when somebody throws the table away.
func TestConnectionsLiveOn(t *testing.T) {
	w := newWorld(t)
	s := service("web", "10")
	w.apply(change(s, ready(1)))
	c, err := w.clients.Dial("tcp", "", "10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, step := range []func(){
		func() { w.apply(change(s, ready(2))) },
		func() {
			w.applier = w.restarted()
			w.apply(change(s, ready(3)))
		},
		func() {
			if err := w.applier.Remove(); err != nil {
				t.Fatal(err)
			}
			if err := w.applier.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		step()
		if pod, _, err := ask(c); err != nil || pod != "10.1.0.1" {
			t.Fatalf("reached %q: %v", pod, err)
		}
	}
	if pod, _, _ := w.answer(w.clients, "tcp", "", "10.96.0.10:80"); pod != "10.1.0.3" {
		t.Errorf("a new connection reached %q", pod)
	}
}

// A UDP flow does not go on to an endpoint that the policy of its way no longer lets its client come to.
func TestFlowsEndWithTheirPolicy(t *testing.T) {
	w := newWorld(t)
	s := func(policy, sources string) *corev1.Service {
		return service("web", "10", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = "LoadBalancer", policy
			s.Spec.LoadBalancerSourceRanges = []string{sources}
			s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30080, 30080
			s.Status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: []*corev1.LoadBalancerIngress{{Ip: "192.0.2.2"}}}
		})
	}
	ends := []end{{pod: 1, ready: true, serving: true, elsewhere: true}}
	before := change(s("Cluster", "10.2.0.0/24"), ends)
	for _, then := range []struct {
		to              string
		after           services.Change
		inside, outside bool
	}{
		{"192.0.2.2:80", change(s("Cluster", "10.9.0.0/24"), ends), false, false},
		{"192.0.2.2:80", change(s("Cluster", "10.2.0.0/25"), ends), false, true},
		{nodeIP + ":30080", change(s("Local", "10.2.0.0/24"), ends), true, false},
	} {
		for ns, goesOn := range map[*netnstest.NS]bool{w.clients: then.inside, w.outside: then.outside} {
			if then.to == "192.0.2.2:80" && ns == w.clients {
				continue // it may never come
			}
			w.apply(before)
			c, err := ns.Dial("udp", "", then.to)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := ask(c); err != nil {
				t.Fatalf("to %s: %v", then.to, err)
			}
			w.apply(then.after)
			if goesOn {
				if _, _, err := ask(c); err != nil {
					t.Errorf("to %s: the flow has ended: %v", then.to, err)
				}
			} else {
				_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
				if _, err := fmt.Fprintln(c, 1); err != nil {
					t.Fatal(err)
				}
				if n, err := c.Read(make([]byte, 100)); err == nil {
					t.Errorf("to %s: the flow goes on: %d bytes came", then.to, n)
				}
			}
			_ = c.Close()
		}
	}
}
