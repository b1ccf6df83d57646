package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	on "monoplane.dev/api/networking/v1"
	"monoplane.dev/apierrors"
	ournetworking "monoplane.dev/apiserver/kinds/networking"
)

var networkHosts = []string{"", "example.com", "*.example.com", "*", "a.*.b", "10.0.0.1", "::1", "Example.com", "a_b"}

// mostly returns the first of a list, and now and then another one.
func mostly[T any](r *rand.Rand, from []T) T {
	if r.IntN(5) > 0 {
		return from[0]
	}
	return pick(r, from)
}

func ingressBackend(r *rand.Rand) *networkingv1.IngressBackend {
	b := &networkingv1.IngressBackend{}
	if r.IntN(8) > 0 {
		b.Service = &networkingv1.IngressServiceBackend{Name: mostly(r, []string{"web", "web", "", "Web", "1a", "a.b"})}
		byNumber := r.IntN(2) == 0
		if byNumber || r.IntN(8) == 0 {
			b.Service.Port.Number = mostly(r, []int32{80, 0, -1, 65536})
		}
		if !byNumber || r.IntN(8) == 0 {
			b.Service.Port.Name = mostly(r, []string{"http", "", "a--b", "toolongforaportname", "8080", "HTTP"})
		}
	}
	if b.Service == nil || r.IntN(12) == 0 {
		b.Resource = &v1.TypedLocalObjectReference{
			Kind: mostly(r, []string{"Bucket", "", "a/b"}), Name: mostly(r, []string{"b", "", "..", "%"}),
		}
		if r.IntN(2) == 0 {
			b.Resource.APIGroup = ptr(mostly(r, []string{"example.com", "", "A B"}))
		}
	}
	return b
}

func randomIngress(r *rand.Rand) *networkingv1.Ingress {
	k := &networkingv1.Ingress{ObjectMeta: meta("web")}
	k.ResourceVersion = "1"
	if r.IntN(4) == 0 {
		k.Annotations = map[string]string{"kubernetes.io/ingress.class": mostly(r, []string{"a", "", "A"})}
	}
	if r.IntN(3) == 0 {
		k.Spec.IngressClassName = ptr(mostly(r, []string{"a", "b", "", "A", "a.b"}))
	}
	if r.IntN(3) == 0 {
		k.Spec.DefaultBackend = ingressBackend(r)
	}
	for range 1 + r.IntN(2) {
		rule := networkingv1.IngressRule{Host: mostly(r, networkHosts)}
		if r.IntN(8) > 0 {
			rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
			for range mostly(r, []int{1, 2, 0}) {
				path := networkingv1.HTTPIngressPath{
					Path: mostly(r, []string{"/", "", "a", "/a//b", "/a/./b", "/a/../b", "/..", "/.", "/%2f", "/a%2Fb", "/a b"}),
					PathType: mostly(r, []*networkingv1.PathType{
						ptr(networkingv1.PathTypeExact), ptr(networkingv1.PathTypePrefix),
						ptr(networkingv1.PathTypeImplementationSpecific), nil, ptr(networkingv1.PathType("Other")),
						ptr(networkingv1.PathType("")),
					}),
					Backend: *ingressBackend(r),
				}
				rule.HTTP.Paths = append(rule.HTTP.Paths, path)
			}
		}
		k.Spec.Rules = append(k.Spec.Rules, rule)
	}
	for range r.IntN(3) {
		tls := networkingv1.IngressTLS{SecretName: mostly(r, []string{"", "s", "S", "a b", "a.b"})}
		for range r.IntN(3) {
			tls.Hosts = append(tls.Hosts, mostly(r, networkHosts))
		}
		k.Spec.TLS = append(k.Spec.TLS, tls)
	}
	for range r.IntN(3) {
		k.Status.LoadBalancer.Ingress = append(k.Status.LoadBalancer.Ingress, networkingv1.IngressLoadBalancerIngress{
			IP:       mostly(r, []string{"", "192.0.2.1", "::1", "1.2.3", "01.2.3.4"}),
			Hostname: mostly(r, []string{"", "a.example.com", "10.0.0.1", "A"}),
		})
	}
	return k
}

func randomIngressClass(r *rand.Rand) *networkingv1.IngressClass {
	k := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1"}}
	k.Spec.Controller = pick(r, []string{"example.com/a", "example.com/a", "", "a", "example.com/", "/a",
		"Example.com/a"})
	if r.IntN(2) == 0 {
		p := &networkingv1.IngressClassParametersReference{
			Kind: pick(r, []string{"Parameters", "", "a/b"}), Name: pick(r, []string{"p", "", "%"}),
		}
		if r.IntN(2) == 0 {
			p.APIGroup = ptr(pick(r, []string{"example.com", "", "A B"}))
		}
		if r.IntN(2) == 0 {
			p.Scope = ptr(pick(r, []string{"Cluster", "Namespace", "", "Other"}))
		}
		if r.IntN(2) == 0 {
			p.Namespace = ptr(pick(r, []string{"ns", "", "A"}))
		}
		k.Spec.Parameters = p
	}
	return k
}

var networkRanges = []string{
	"10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32", "2001:db8:1::/48", "",
	"10.0.0.1", "10.1.2.3/16", "010.0.0.0/8", "10.0.0.0/33", "::ffff:10.0.0.0/104", "a",
}

func policyPeers(r *rand.Rand) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for range r.IntN(3) {
		p := networkingv1.NetworkPolicyPeer{}
		if r.IntN(3) == 0 {
			p.PodSelector = selector(r)
		}
		if r.IntN(3) == 0 {
			p.NamespaceSelector = selector(r)
		}
		if r.IntN(2) == 0 {
			p.IPBlock = &networkingv1.IPBlock{CIDR: pick(r, networkRanges)}
			for range r.IntN(3) {
				p.IPBlock.Except = append(p.IPBlock.Except, pick(r, networkRanges))
			}
		}
		out = append(out, p)
	}
	return out
}

func policyPorts(r *rand.Rand) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for range r.IntN(3) {
		p := networkingv1.NetworkPolicyPort{}
		if r.IntN(2) == 0 {
			p.Protocol = ptr(pick(r, []v1.Protocol{"TCP", "UDP", "SCTP", "", "ICMP"}))
		}
		switch r.IntN(3) {
		case 0:
			p.Port = ptr(intstr.FromInt32(pick(r, []int32{80, 0, -1, 65535, 65536})))
		case 1:
			p.Port = ptr(intstr.FromString(pick(r, []string{"http", "", "80", "a--b", "HTTP"})))
		}
		if r.IntN(3) == 0 {
			p.EndPort = ptr(pick(r, []int32{80, 90, 0, 65536, 1}))
		}
		out = append(out, p)
	}
	return out
}

func randomNetworkPolicy(r *rand.Rand) *networkingv1.NetworkPolicy {
	k := &networkingv1.NetworkPolicy{ObjectMeta: meta("web")}
	k.ResourceVersion = "1"
	if s := selector(r); s != nil {
		k.Spec.PodSelector = *s
	}
	for range r.IntN(3) {
		k.Spec.Ingress = append(k.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			Ports: policyPorts(r), From: policyPeers(r),
		})
	}
	for range r.IntN(3) {
		k.Spec.Egress = append(k.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
			Ports: policyPorts(r), To: policyPeers(r),
		})
	}
	for range r.IntN(4) {
		k.Spec.PolicyTypes = append(k.Spec.PolicyTypes, pick(r, []networkingv1.PolicyType{"Ingress", "Egress", "", "Other"}))
	}
	return k
}

func randomServiceCIDR(r *rand.Rand) *networkingv1.ServiceCIDR {
	k := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{
		Name: mostly(r, []string{"more", "", "More", "10.0.0.0"}), ResourceVersion: "1",
	}}
	for range mostly(r, []int{1, 0, 2, 2, 2, 3}) {
		k.Spec.CIDRs = append(k.Spec.CIDRs, pick(r, networkRanges))
	}
	if r.IntN(3) == 0 {
		k.Status.Conditions = []metav1.Condition{{Type: pick(r, []string{"Ready", ""}), Status: "True"}}
	}
	return k
}

func randomIPAddress(r *rand.Rand) *networkingv1.IPAddress {
	k := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
		Name:            mostly(r, []string{"10.0.0.1", "fd00::1", "", "a", "010.0.0.1", "FD00::1", "::ffff:10.0.0.1"}),
		ResourceVersion: "1",
	}}
	if r.IntN(8) > 0 {
		k.Spec.ParentRef = &networkingv1.ParentReference{
			Group: mostly(r, []string{"", "example.com", "A B"}), Resource: mostly(r, []string{"services", "", "..", "a/b"}),
			Namespace: mostly(r, []string{"default", "", "%"}), Name: mostly(r, []string{"web", "db", "", ".", "A_b"}),
		}
	}
	return k
}

// warnedKind is a kind of which nothing but its objects is served, as both sides judge it.
type warnedKind[K interface {
	upstream
	runtime.Object
}, O proto.Message] struct {
	topic  string
	random func(*rand.Rand) K
	ours   func() O
	fill   func(O)
	// Our rules; that of the status is nil where there is none.
	mine           func(O) []apierrors.Cause
	change, status func(now, was O) []apierrors.Cause
}

// filledVerdict has the object with what was left out, too, in protobuf.
type filledVerdict struct {
	verdict
	Filled []byte
}

func (n warnedKind[K, O]) judge(t *testing.T) {
	t.Helper()
	r := random(t)
	bad, fine := 0, 0
	for i := 0; i < *count && bad < 25; i++ {
		k, old := n.random(r), n.random(r)
		if r.IntN(3) == 0 {
			old = k.DeepCopyObject().(K)
		}
		what := []string{fmt.Sprint(k), "of", fmt.Sprint(old)}
		theirs := ask[filledVerdict](t, n.topic, k, old)
		o, before := converted(t, k, n.ours()), converted(t, old, n.ours())
		n.fill(o)
		n.fill(before)
		want := n.ours()
		if err := proto.Unmarshal(theirs.Filled, want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(o, want) {
			bad++
			t.Errorf("defaults: Kubernetes %v\nMonoplane  %v", want, o)
		}
		mine := n.mine(o)
		if len(mine) == 0 {
			fine++
		}
		if judged(t, what, theirs.verdict, mine, n.change(o, before)) {
			bad++
		}
		if n.status != nil && report(t, append(what, "status"), onlyMeta(compare(theirs.Status,
			ourFaults(n.status(o, before))))) {
			bad++
		}
	}
	if *count >= 1000 && fine < *count/100 {
		t.Errorf("only %d of %d were in order", fine, *count)
	}
}

// spec: OBJ-3
func TestIngressesAreJudgedAlike(t *testing.T) {
	warnedKind[*networkingv1.Ingress, *on.Ingress]{
		topic: "ingresses", random: randomIngress,
		ours: func() *on.Ingress { return &on.Ingress{} }, fill: ournetworking.DefaultIngress,
		mine: ournetworking.ValidateIngress, change: ournetworking.ValidateIngressUpdate,
		status: ournetworking.ValidateIngressStatusUpdate,
	}.judge(t)
}

// spec: OBJ-3
func TestIngressClassesAreJudgedAlike(t *testing.T) {
	warnedKind[*networkingv1.IngressClass, *on.IngressClass]{
		topic: "ingressclasses", random: randomIngressClass,
		ours: func() *on.IngressClass { return &on.IngressClass{} }, fill: ournetworking.DefaultIngressClass,
		mine: ournetworking.ValidateIngressClass, change: ournetworking.ValidateIngressClassUpdate,
	}.judge(t)
}

// spec: OBJ-3
func TestNetworkPoliciesAreJudgedAlike(t *testing.T) {
	warnedKind[*networkingv1.NetworkPolicy, *on.NetworkPolicy]{
		topic: "networkpolicies", random: randomNetworkPolicy,
		ours: func() *on.NetworkPolicy { return &on.NetworkPolicy{} }, fill: ournetworking.DefaultNetworkPolicy,
		mine: ournetworking.ValidateNetworkPolicy, change: ournetworking.ValidateNetworkPolicyUpdate,
	}.judge(t)
}

// spec: OBJ-3
func TestServiceCIDRsAreJudgedAlike(t *testing.T) {
	warnedKind[*networkingv1.ServiceCIDR, *on.ServiceCIDR]{
		topic: "servicecidrs", random: randomServiceCIDR,
		ours: func() *on.ServiceCIDR { return &on.ServiceCIDR{} }, fill: ournetworking.DefaultServiceCIDR,
		mine: ournetworking.ValidateServiceCIDR, change: ournetworking.ValidateServiceCIDRUpdate,
		status: ournetworking.ValidateServiceCIDRStatusUpdate,
	}.judge(t)
}

// spec: OBJ-3
func TestIPAddressesAreJudgedAlike(t *testing.T) {
	warnedKind[*networkingv1.IPAddress, *on.IPAddress]{
		topic: "ipaddresses", random: randomIPAddress,
		ours: func() *on.IPAddress { return &on.IPAddress{} }, fill: ournetworking.DefaultIPAddress,
		mine: ournetworking.ValidateIPAddress, change: ournetworking.ValidateIPAddressUpdate,
	}.judge(t)
}
