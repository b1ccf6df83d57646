package services_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/google/nftables"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/network/services"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

// subject is a Service of a random history.
type subject struct {
	service *corev1.Service
	ends    []end
}

// reference says, in as few words as the rules can be said, where a client of a Service may end up: at one of the
// pods, or at a verdict. external is for a client that uses a node port or an external address.
func (s subject) reference(external, inside bool) (to map[int]bool, verdict string) {
	policy := s.service.GetSpec().GetInternalTrafficPolicy()
	if external {
		policy = s.service.GetSpec().GetExternalTrafficPolicy()
		if inside {
			policy = "Cluster"
		}
	}
	some := false
	zoned, mine := true, false
	for _, e := range s.ends {
		some = some || e.ready || e.serving && e.terminating
		if e.ready {
			zoned = zoned && len(e.zones) > 0
			for _, z := range e.zones {
				mine = mine || z == "a"
			}
		}
	}
	take := func(want func(end) bool) map[int]bool {
		out := map[int]bool{}
		for _, e := range s.ends {
			inZone := false
			for _, z := range e.zones {
				inZone = inZone || z == "a"
			}
			switch {
			case policy == "Local" && e.elsewhere:
			case policy != "Local" && e.ready && zoned && mine && !inZone:
			case want(e):
				out[e.pod] = true
			}
		}
		return out
	}
	if to = take(func(e end) bool { return e.ready }); len(to) > 0 {
		return to, ""
	}
	if to = take(func(e end) bool { return !e.ready && e.serving && e.terminating }); len(to) > 0 {
		return to, ""
	}
	if some {
		return nil, services.Drop
	}
	return nil, services.Reject
}

func randomSubject(r *rand.Rand, n int) subject {
	policy := func() string { return []string{"Cluster", "Local"}[r.IntN(2)] }
	s := service(fmt.Sprintf("s%d", n), fmt.Sprint(10+n), func(s *corev1.Service) {
		internal := policy()
		s.Spec.InternalTrafficPolicy = &internal
		if r.IntN(2) == 0 {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = "NodePort", policy()
			s.Spec.Ports[0].NodePort = int32(30000 + n)
			s.Spec.ExternalIPs = []string{fmt.Sprintf("192.0.2.%d", n+1)}
		}
		if r.IntN(3) == 0 {
			s.Spec.SessionAffinity = "ClientIP"
		}
	})
	out := subject{service: s}
	zones := [][]string{nil, {"a"}, {"b"}, {"a", "b"}}
	hinted := r.IntN(2) == 0
	for _, pod := range r.Perm(pods)[:r.IntN(pods)] {
		e := end{pod: pod + 1, elsewhere: r.IntN(3) == 0}
		switch r.IntN(4) {
		case 0, 1:
			e.ready, e.serving = true, true
		case 2:
			e.serving, e.terminating = true, true
		case 3:
			e.terminating = r.IntN(2) == 0
		}
		if hinted {
			e.zones = zones[1+r.IntN(3)]
			if r.IntN(6) == 0 {
				e.zones = nil
			}
		}
		out.ends = append(out.ends, e)
	}
	return out
}

// target is a way to reach a Service.
type target struct {
	entry    services.Entry
	external bool
}

func (s subject) targets() []target {
	var out []target
	for _, ip := range s.service.GetSpec().GetClusterIPs() {
		addr := netip.MustParseAddr(ip)
		for _, protocol := range []string{"tcp", "udp"} {
			out = append(out, target{services.Entry{Protocol: protocol, V6: addr.Is6(), Addr: addr, Port: 80}, false})
		}
	}
	if p := s.service.GetSpec().GetPorts()[0].GetNodePort(); p != 0 {
		external := netip.MustParseAddr(s.service.GetSpec().GetExternalIPs()[0])
		out = append(out,
			target{services.Entry{Protocol: "tcp", Port: uint16(p)}, true},
			target{services.Entry{Protocol: "tcp", V6: true, Port: uint16(p)}, true},
			target{services.Entry{Protocol: "tcp", Addr: external, Port: 80}, true})
	}
	return out
}

func podAddress(pod int, v6 bool) string {
	if v6 {
		return fmt.Sprintf("fd00:1::%d", pod)
	}
	return fmt.Sprintf("10.1.0.%d", pod)
}

// The rules of random Services lead where the reference says.
func TestRulesAreAsTheReference(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 3000 {
		s := randomSubject(r, 1)
		rules := change(s.service, s.ends).Rules
		for _, to := range s.targets() {
			for _, inside := range []bool{false, true} {
				pods, want := s.reference(to.external, inside)
				expect := map[string]bool{}
				for p := range pods {
					expect[podAddress(p, to.entry.V6)] = true
				}
				got, verdict := rules.Leads(to.entry, inside)
				if verdict != want || !maps.Equal(got, expect) {
					t.Fatalf("seed %d: %v inside %v leads to %v %q, want %v %q\n%v\n%v", seed, to, inside, got, verdict,
						expect, want, s.service, s.ends)
				}
			}
		}
	}
}

// Histories of random Services in the kernel: after each change connections end where the reference says, and the
// table has what it should and nothing else, whatever others did to it and although the process was restarted.
func TestHistories(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t)
	now := map[int]subject{}
	w.apply() // so that there is a table to damage
	for round := range 40 {
		var changes []services.Change
		for range 1 + r.IntN(3) {
			n := r.IntN(4)
			if s, ok := now[n]; ok && r.IntN(4) == 0 {
				changes = append(changes, services.Change{Service: key(s.service)})
				delete(now, n)
				continue
			}
			now[n] = randomSubject(r, n)
			changes = append(changes, change(now[n].service, now[n].ends))
		}
		switch r.IntN(6) {
		case 0:
			w.applier = w.restarted()
			changes = nil
			for _, s := range now {
				changes = append(changes, change(s.service, s.ends))
			}
		case 1:
			w.node.Rules(func(conn *nftables.Conn) error { return damage(conn, r) })
		}
		w.apply(changes...)
		if err := w.applier.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d, err := w.applier.Differences(); err != nil || d != "" {
			t.Fatalf("seed %d, round %d: %v %s", seed, round, err, d)
		}
		for _, s := range now {
			w.check(seed, round, s)
		}
	}
}

// check connects to a Service in every way.
func (w *world) check(seed uint64, round int, s subject) {
	w.t.Helper()
	for _, to := range s.targets() {
		for _, inside := range []bool{false, true} {
			want, verdict := s.reference(to.external, inside)
			if verdict == services.Drop {
				continue // nothing comes back, and waiting for that proves little
			}
			ns := map[bool]*netnstest.NS{false: w.outside, true: w.clients}[inside]
			addr := to.entry.Addr.String()
			if !to.entry.Addr.IsValid() {
				addr = map[bool]string{false: nodeIP, true: nodeIP6}[to.entry.V6]
			}
			at := net.JoinHostPort(addr, fmt.Sprint(to.entry.Port))
			for range 3 {
				pod, _, refused := w.answer(ns, to.entry.Protocol, "", at)
				known := refused && verdict == services.Reject
				for p := range want {
					known = known || pod == podAddress(p, to.entry.V6)
				}
				if !known {
					w.t.Fatalf("seed %d, round %d: %s, inside %v, reached %q (refused %v), want %v %q", seed, round, at, inside,
						pod, refused, want, verdict)
				}
			}
		}
	}
}
