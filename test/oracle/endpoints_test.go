package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "monoplane.dev/api/core/v1"
	od "monoplane.dev/api/discovery/v1"
	ourcore "monoplane.dev/apiserver/kinds/core"
	ourdiscovery "monoplane.dev/apiserver/kinds/discovery"
	"monoplane.dev/controllers/endpoints/subsets"
)

// ips are addresses of all sorts.
var ips = []string{"", "10.0.0.1", "010.0.0.1", "127.0.0.1", "169.254.0.1", "224.0.0.5", "224.1.0.1", "0.0.0.0", "::",
	"fd00::1", "FD00::1", "fd00:0::2", "fe80::1", "ff02::1", "::1", "::ffff:10.0.0.1", "x", "example.com", "a.b.", "A.b"}

func TestEndpointsAreJudgedAlike(t *testing.T) {
	base := func() *v1.Endpoints {
		return &v1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default", ResourceVersion: "1"},
			Subsets: []v1.EndpointSubset{{
				Addresses:         []v1.EndpointAddress{{IP: "10.0.0.1", Hostname: "a", NodeName: ptr("n")}, {IP: "fd00::1"}},
				NotReadyAddresses: []v1.EndpointAddress{{IP: "10.0.0.2", TargetRef: &v1.ObjectReference{Kind: "Pod", Name: "p"}}},
				Ports: []v1.EndpointPort{{Name: "a", Port: 1, AppProtocol: ptr("http")}, {Name: "b", Port: 2,
					Protocol: "UDP"}},
			}},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		what := alter(r, k, r.IntN(4), nil)
		for _, s := range k.Subsets {
			if len(s.Addresses) > 0 && r.IntN(2) == 0 {
				s.Addresses[0].IP = pick(r, ips)
			}
		}
		theirs := ask[verdict](t, "endpoints", k, old)
		e, err := ours(k, &corev1.Endpoints{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.Endpoints{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultEndpoints(e)
		ourcore.DefaultEndpoints(o)
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourcore.ValidateEndpoints(e)))) ||
			report(t, append(what, "update"), onlyMeta(compare(theirs.Updated,
				ourFaults(ourcore.ValidateEndpointsUpdate(e, o))))) {
			bad++
		}
	}
}

func TestEndpointSlicesAreJudgedAlike(t *testing.T) {
	base := func() *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default", ResourceVersion: "1"}, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.0.0.1"}, NodeName: ptr("n"), Hostname: ptr("h"), Zone: ptr("z"),
					Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}, {Name: "y"}},
						ForNodes: []discoveryv1.ForNode{{Name: "n"}, {Name: "m"}}}},
				{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}},
			},
			Ports: []discoveryv1.EndpointPort{{Port: ptr(int32(80))}, {Name: ptr("b"), Protocol: ptr(v1.ProtocolUDP)}},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		what := alter(r, k, r.IntN(4), func(path string) bool { return !strings.Contains(path, "DeprecatedTopology") })
		if r.IntN(2) == 0 {
			k.AddressType = pick(r, []discoveryv1.AddressType{"IPv4", "IPv6", "FQDN"})
		}
		for i := range k.Endpoints {
			if r.IntN(2) == 0 {
				k.Endpoints[i].Addresses = []string{pick(r, ips), pick(r, ips)}[:1+r.IntN(2)]
			}
			if k.Endpoints[i].Hints != nil && r.IntN(10) == 0 {
				k.Endpoints[i].Hints.ForZones = make([]discoveryv1.ForZone, 9)
			}
		}
		theirs := ask[verdict](t, "endpointslices", k, old)
		s, err := ours(k, &od.EndpointSlice{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &od.EndpointSlice{})
		if err != nil {
			t.Fatal(err)
		}
		ourdiscovery.DefaultEndpointSlice(s)
		ourdiscovery.DefaultEndpointSlice(o)
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourdiscovery.ValidateEndpointSlice(s)))) ||
			report(t, append(what, "update"), onlyMeta(compare(theirs.Updated,
				ourFaults(ourdiscovery.ValidateEndpointSliceUpdate(s, o))))) {
			bad++
		}
	}
}

// Subsets are packed into the same ones. spec: WORK-4
func TestSubsetsArePackedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := &v1.Endpoints{}
		for range r.IntN(5) {
			var s v1.EndpointSubset
			for range r.IntN(4) {
				a := v1.EndpointAddress{IP: pick(r, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})}
				if r.IntN(2) == 0 {
					a.TargetRef = &v1.ObjectReference{UID: types.UID(pick(r, []string{"a", "b"}))}
				}
				if r.IntN(2) == 0 {
					s.Addresses = append(s.Addresses, a)
				} else {
					s.NotReadyAddresses = append(s.NotReadyAddresses, a)
				}
			}
			for range r.IntN(3) {
				s.Ports = append(s.Ports, v1.EndpointPort{Name: pick(r, []string{"", "a"}), Port: int32(1 + r.IntN(2)),
					Protocol: pick(r, []v1.Protocol{"TCP", "UDP"})})
			}
			k.Subsets = append(k.Subsets, s)
		}
		want := packed(convert(t, ask[*v1.Endpoints](t, "subsets", k), &corev1.Endpoints{}).Subsets)
		if got := packed(subsets.Repack(convert(t, k, &corev1.Endpoints{}).Subsets)); got != want {
			t.Fatalf("Kubernetes:\n%s\nMonoplane:\n%s\nof %v", want, got, k.Subsets)
		}
	}
}

// packed is what subsets say, in an order of its own.
func packed(all []*corev1.EndpointSubset) string {
	var out []string
	for _, s := range all {
		var parts []string
		for _, a := range s.GetAddresses() {
			parts = append(parts, "ready "+a.GetIp()+" "+a.GetTargetRef().GetUid())
		}
		for _, a := range s.GetNotReadyAddresses() {
			parts = append(parts, "not "+a.GetIp()+" "+a.GetTargetRef().GetUid())
		}
		for _, p := range s.GetPorts() {
			parts = append(parts, fmt.Sprint("port ", p.GetName(), p.GetPort(), p.GetProtocol()))
		}
		slices.Sort(parts)
		out = append(out, strings.Join(parts, ", "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
