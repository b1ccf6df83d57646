package policies_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/policies"
)

// cluster is a random world, as a reference understands it.
type cluster struct {
	namespaces map[string]map[string]string
	pods       map[string]*subject
	policies   map[cache.Key]*networkingv1.NetworkPolicy
}

// subject is somebody who sends and gets packets; without a namespace, not a pod.
type subject struct {
	name, namespace string
	addrs           [2]netip.Addr
	labels          map[string]string
	ports           []policies.NamedPort
	here            bool
}

// allows says, in the words of Kubernetes' documentation and with nothing of the compiler's, whether a connection is
// let through.
func (c *cluster) allows(src, dst *subject, v6 bool, protocol string, port uint16) bool {
	return c.one("Egress", src, dst, dst, v6, protocol, port) && c.one("Ingress", dst, src, dst, v6, protocol, port)
}

// one judges a connection for the pod at one of its ends.
func (c *cluster) one(direction string, pod, peer, dst *subject, v6 bool, protocol string, port uint16) bool {
	if !pod.here {
		return true // its own node judges
	}
	isolated := false
	for key, p := range c.policies {
		s := p.GetSpec()
		about := direction == "Ingress" || len(s.GetEgress()) > 0
		if len(s.GetPolicyTypes()) > 0 {
			about = strings.Contains(strings.Join(s.GetPolicyTypes(), ","), direction)
		}
		if !about || key.Namespace != pod.namespace || !matches(s.GetPodSelector(), pod.labels) {
			continue
		}
		isolated = true
		try := func(peers []*networkingv1.NetworkPolicyPeer, ports []*networkingv1.NetworkPolicyPort) bool {
			return c.isPeer(key.Namespace, peers, peer, v6) && isPort(ports, dst, protocol, port)
		}
		if direction == "Ingress" {
			for _, r := range s.GetIngress() {
				if try(r.GetFrom(), r.GetPorts()) {
					return true
				}
			}
			continue
		}
		for _, r := range s.GetEgress() {
			if try(r.GetTo(), r.GetPorts()) {
				return true
			}
		}
	}
	return !isolated
}

func (c *cluster) isPeer(namespace string, peers []*networkingv1.NetworkPolicyPeer, who *subject, v6 bool) bool {
	for _, p := range peers {
		if b := p.GetIpBlock(); b != nil {
			a := who.addrs[0]
			if v6 {
				a = who.addrs[1]
			}
			in := netip.MustParsePrefix(b.GetCidr()).Contains(a)
			for _, e := range b.GetExcept() {
				in = in && !netip.MustParsePrefix(e).Contains(a)
			}
			if in {
				return true
			}
			continue
		}
		if who.namespace == "" {
			continue
		}
		in := who.namespace == namespace
		if p.GetNamespaceSelector() != nil {
			of, known := c.namespaces[who.namespace]
			in = known && matches(p.GetNamespaceSelector(), of)
		}
		if in && (p.GetPodSelector() == nil || matches(p.GetPodSelector(), who.labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func isPort(ports []*networkingv1.NetworkPolicyPort, dst *subject, protocol string, port uint16) bool {
	for _, p := range ports {
		want := "TCP"
		if p.Protocol != nil {
			want = *p.Protocol
		}
		if !strings.EqualFold(want, protocol) {
			continue
		}
		switch {
		case p.GetPort() == nil:
			return true
		case p.GetPort().GetStrVal() != "":
			for _, has := range dst.ports {
				if has.Name == p.GetPort().GetStrVal() && has.Protocol == protocol && has.Number == port {
					return true
				}
			}
		case p.EndPort == nil && p.GetPort().GetIntVal() == int32(port),
			p.EndPort != nil && p.GetPort().GetIntVal() <= int32(port) && int32(port) <= *p.EndPort:
			return true
		}
	}
	return len(ports) == 0
}

func matches(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.GetMatchLabels() {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	for _, e := range s.GetMatchExpressions() {
		have, ok := labels[e.GetKey()]
		in := false
		for _, v := range e.GetValues() {
			in = in || ok && v == have
		}
		if !map[string]bool{"In": in, "NotIn": !in, "Exists": ok, "DoesNotExist": !ok}[e.GetOperator()] {
			return false
		}
	}
	return true
}

var (
	names     = []string{"a", "b"}
	testPorts = []uint16{8080, 8081, 9000}
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomLabels(r *rand.Rand) map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if r.IntN(3) > 0 {
			out[k] = pick(r, "x", "y")
		}
	}
	return out
}

func randomSelector(r *rand.Rand) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch r.IntN(4) {
	case 0:
	case 1:
		s.MatchLabels = randomLabels(r)
	default:
		e := &metav1.LabelSelectorRequirement{
			Key: pick(r, "app", "tier"), Operator: pick(r, "In", "NotIn", "Exists", "DoesNotExist"),
		}
		if strings.HasSuffix(e.GetOperator(), "In") {
			e.Values = []string{pick(r, "x", "y")}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func randomPeers(r *rand.Rand) []*networkingv1.NetworkPolicyPeer {
	var out []*networkingv1.NetworkPolicyPeer
	for range r.IntN(3) {
		p := &networkingv1.NetworkPolicyPeer{}
		switch r.IntN(4) {
		case 0:
			p.PodSelector = randomSelector(r)
		case 1:
			p.NamespaceSelector = randomSelector(r)
		case 2:
			p.PodSelector, p.NamespaceSelector = randomSelector(r), randomSelector(r)
		default:
			p.IpBlock = pick(r,
				&networkingv1.IPBlock{Cidr: "0.0.0.0/0", Except: []string{"10.1.0.0/16"}},
				&networkingv1.IPBlock{Cidr: "10.1.0.0/16", Except: []string{"10.1.0.2/32", "10.1.1.0/31"}},
				&networkingv1.IPBlock{Cidr: "192.0.2.0/24", Except: []string{"192.0.2.0/32", "192.0.2.2/31"}},
				&networkingv1.IPBlock{Cidr: "::/0", Except: []string{"fd00:1::/64", "fd00:2::1/128"}},
				&networkingv1.IPBlock{Cidr: "fd00:1::/127"}, &networkingv1.IPBlock{Cidr: "0.0.0.0/0"})
		}
		out = append(out, p)
	}
	return out
}

func randomPorts(r *rand.Rand) []*networkingv1.NetworkPolicyPort {
	var out []*networkingv1.NetworkPolicyPort
	for range r.IntN(3) {
		p := &networkingv1.NetworkPolicyPort{}
		if protocol := pick(r, "", "TCP", "UDP", "SCTP"); protocol != "" {
			p.Protocol = &protocol
		}
		switch r.IntN(4) {
		case 0:
		case 1:
			p.Port = &metav1.IntOrString{Type: 1, StrVal: pick(r, "web", "admin")}
		case 2:
			last := int32(pick(r, 8080, 8081, 65535))
			p.EndPort = &last
			p.Port = &metav1.IntOrString{IntVal: pick[int32](r, 1, 8080)}
		default:
			p.Port = &metav1.IntOrString{IntVal: int32(pick(r, testPorts...))}
		}
		out = append(out, p)
	}
	return out
}

func randomPolicy(r *rand.Rand, key cache.Key) *networkingv1.NetworkPolicy {
	s := &networkingv1.NetworkPolicySpec{PodSelector: randomSelector(r)}
	for range r.IntN(3) {
		s.Ingress = append(s.Ingress,
			&networkingv1.NetworkPolicyIngressRule{From: randomPeers(r), Ports: randomPorts(r)})
	}
	for range r.IntN(3) {
		s.Egress = append(s.Egress, &networkingv1.NetworkPolicyEgressRule{To: randomPeers(r), Ports: randomPorts(r)})
	}
	s.PolicyTypes = pick(r, nil, []string{"Ingress"}, []string{"Egress"}, []string{"Ingress", "Egress"})
	return &networkingv1.NetworkPolicy{
		Metadata: &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: s,
	}
}

func newCluster() *cluster {
	return &cluster{
		namespaces: map[string]map[string]string{}, pods: map[string]*subject{},
		policies: map[cache.Key]*networkingv1.NetworkPolicy{},
	}
}

// everybody are the places that pods can have, by number: four on this node, two on another, and two outside.
func everybody() []*subject {
	var out []*subject
	for i := range 8 {
		s := &subject{name: fmt.Sprint("s", i), here: i < 4}
		switch {
		case i < 4:
			s.addrs = [2]netip.Addr{addr("10.1.0.%d", i+1), addr("fd00:1::%d", i+1)}
		case i < 6:
			s.addrs = [2]netip.Addr{addr("10.1.1.%d", i-3), addr("fd00:1:0:1::%d", i-3)}
		default:
			s.addrs = [2]netip.Addr{addr("192.0.2.%d", i-5), addr("fd00:2::%d", i-5)}
		}
		out = append(out, s)
	}
	return out
}

func addr(format string, n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, n)) }

// change changes something at random, in the cluster and in the world.
func (c *cluster) change(r *rand.Rand, all []*subject, w *policies.World) {
	switch r.IntN(4) {
	case 0:
		name := pick(r, names...)
		if r.IntN(4) == 0 {
			delete(c.namespaces, name)
		} else {
			c.namespaces[name] = randomLabels(r)
		}
		of, exists := c.namespaces[name]
		w.SetNamespace(name, of, exists)
	case 1, 2:
		s := all[r.IntN(6)]
		if s.namespace != "" && r.IntN(5) == 0 {
			w.SetPod(s.namespace, s.name, nil)
			s.namespace, s.ports = "", nil
			delete(c.pods, s.name)
			return
		}
		if s.namespace == "" {
			s.namespace = pick(r, names...)
		}
		s.labels, s.ports = randomLabels(r), nil
		for _, name := range []string{"web", "admin"} {
			if r.IntN(2) == 0 {
				s.ports = append(s.ports, policies.NamedPort{
					Name: name, Protocol: pick(r, "tcp", "udp"), Number: pick(r, testPorts...),
				})
			}
		}
		c.pods[s.name] = s
		s.tell(w)
	case 3:
		key := cache.Key{Namespace: pick(r, names...), Name: pick(r, "one", "two")}
		if _, ok := c.policies[key]; ok && r.IntN(4) == 0 {
			delete(c.policies, key)
		} else {
			c.policies[key] = randomPolicy(r, key)
		}
		w.SetPolicy(key, c.policies[key])
	}
}

func (s *subject) tell(w *policies.World) {
	w.SetPod(s.namespace, s.name, &policies.Pod{
		Labels: maps.Clone(s.labels), Addrs: s.addrs[:], Ports: s.ports, Here: s.here,
	})
}

// anew returns a world that was told everything once.
func (c *cluster) anew() *policies.World {
	w := policies.NewWorld()
	for name, of := range c.namespaces {
		w.SetNamespace(name, of, true)
	}
	for key, p := range c.policies {
		w.SetPolicy(key, p)
	}
	for _, s := range c.pods {
		s.tell(w)
	}
	return w
}

// Random histories: after each change the table's content decides as the reference says, for everybody who may speak
// to everybody, and it is what it would have been had all been known from the beginning.
func TestRulesAreAsTheReference(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	refused, through := 0, 0
	for range 40 {
		c, all, w := newCluster(), everybody(), policies.NewWorld()
		for step := range 60 {
			c.change(r, all, w)
			if d := w.Differences(c.anew()); d != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, d)
			}
			for _, src := range all {
				for _, dst := range all {
					for _, v6 := range []bool{false, true} {
						for _, protocol := range []string{"tcp", "udp", "sctp"} {
							i := 0
							if v6 {
								i = 1
							}
							port := pick(r, testPorts...)
							want := c.allows(src, dst, v6, protocol, port)
							if got := w.Lets(src.addrs[i], dst.addrs[i], protocol, port); got != want {
								t.Fatalf("seed %d, step %d: %v to %v, %s %d: let through %v, should be %v\n%v\n%v", seed, step,
									src, dst, protocol, port, got, want, c.policies, c.namespaces)
							}
							if want {
								through++
							} else {
								refused++
							}
						}
					}
				}
			}
		}
	}
	t.Logf("seed %d: %d refused, %d let through", seed, refused, through)
	if min(refused, through) < (refused+through)/20 {
		t.Errorf("seed %d: %d refused, %d let through: the test says little", seed, refused, through)
	}
}

func matchLabel(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// What is taken out of a block is not in it, wherever it is.
func TestBlocks(t *testing.T) {
	for want, b := range map[string]*networkingv1.IPBlock{
		"10.0.0.0-10.255.255.255": {Cidr: "10.0.0.0/8"},
		"10.0.0.0-10.0.255.255 10.2.0.0-10.255.255.255": {
			Cidr: "10.0.0.0/8", Except: []string{"10.1.0.0/16"},
		},
		"10.0.0.128-10.0.0.191":             {Cidr: "10.0.0.0/24", Except: []string{"10.0.0.0/25", "10.0.0.192/26"}},
		"0.0.0.0-255.255.255.254":           {Cidr: "0.0.0.0/0", Except: []string{"255.255.255.255/32"}},
		"fd00::1-fd00::ffff:ffff:ffff:ffff": {Cidr: "fd00::/64", Except: []string{"fd00::/128"}},
		"":                                  {Cidr: "10.0.0.0/8", Except: []string{"10.0.0.0/9", "10.128.0.0/9"}},
	} {
		var got []string
		for _, r := range policies.RangesOf(b) {
			got = append(got, r.First.String()+"-"+r.Last.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v is %v, should be %s", b, got, want)
		}
	}
}
