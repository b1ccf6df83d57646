// Package mirror decides which EndpointSlices say the same as Endpoints that somebody wrote for a service without a
// selector: one slice for each subset and address family. It has no clock and asks nobody.
package mirror

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	utilnet "k8s.io/utils/net"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/controllers/endpoints/subsets"
	wanted "monoplane.dev/controllers/endpointslice/slices"
	"monoplane.dev/object"
	"monoplane.dev/rules/endpoint"
	"monoplane.dev/rules/semantic"
)

const (
	// Manager is who writes these slices.
	Manager = "endpointslicemirroring-controller.k8s.io"
	// Max is how many addresses of a subset are mirrored.
	Max = 1000
	// lastApplied is what kubectl apply keeps for itself.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// leader is the annotation of Endpoints that are a lock and no addresses.
	leader = "control-plane.alpha.kubernetes.io/leader"
)

// Plan is what to do. The slices are those there are, or new objects that share parts with them.
type Plan struct {
	// Create, Update and Delete are slices to make, to change and to remove.
	Create, Update, Delete []*discoveryv1.EndpointSlice
	// Invalid and Skipped count the addresses that are none, and all that are in no slice.
	Invalid, Skipped int
}

// Wanted says whether Endpoints are to be mirrored, as far as they themselves say.
func Wanted(e *corev1.Endpoints) bool {
	_, lock := e.GetMetadata().GetAnnotations()[leader]
	return e != nil && e.GetMetadata().GetLabels()[endpoint.SkipMirror] != "true" && !lock
}

// group is what one slice is to have.
type group struct {
	family    string
	ports     []*discoveryv1.EndpointPort
	endpoints []*discoveryv1.Endpoint
}

// Decide returns what is to be done for Endpoints, whose mirrored slices are existing.
func Decide(e *corev1.Endpoints, existing []*discoveryv1.EndpointSlice) Plan {
	var plan Plan
	groups := map[string]*group{}
	for _, s := range subsets.Repack(e.GetSubsets()) {
		plan.mirror(s, groups)
	}
	there := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range existing {
		key := keyOf(s.GetAddressType(), s.GetPorts())
		there[key] = append(there[key], s)
	}
	var made []*discoveryv1.EndpointSlice
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		next := sliceOf(e, groups[key])
		old := there[key]
		delete(there, key)
		if len(old) == 0 {
			made = append(made, next)
			continue
		}
		slices.SortFunc(old, func(a, b *discoveryv1.EndpointSlice) int {
			return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
		})
		if !same(old[0], next) {
			plan.Update = append(plan.Update, in(old[0], next))
		}
		plan.Delete = append(plan.Delete, old[1:]...)
	}
	for _, key := range slices.Sorted(maps.Keys(there)) {
		plan.Delete = append(plan.Delete, there[key]...)
	}
	for _, next := range made { // in the place of one that goes: one write instead of two
		i := slices.IndexFunc(plan.Delete, func(s *discoveryv1.EndpointSlice) bool {
			return s.GetAddressType() == next.GetAddressType()
		})
		switch {
		case i >= 0:
			plan.Update = append(plan.Update, in(plan.Delete[i], next))
			plan.Delete = slices.Delete(plan.Delete, i, i+1)
		case e.GetMetadata().GetDeletionTimestamp() == nil:
			plan.Create = append(plan.Create, next)
		}
	}
	return plan
}

// mirror adds what a subset has to the groups.
func (plan *Plan) mirror(s *corev1.EndpointSubset, groups map[string]*group) {
	ports := make([]*discoveryv1.EndpointPort, 0, len(s.GetPorts()))
	for _, p := range s.GetPorts() {
		ports = append(ports, &discoveryv1.EndpointPort{
			Name: proto.String(p.GetName()), Port: proto.Int32(p.GetPort()), Protocol: proto.String(p.GetProtocol()),
			AppProtocol: p.AppProtocol,
		})
	}
	added := 0
	add := func(list []*corev1.EndpointAddress, ready bool) {
		for _, a := range list {
			if added >= Max {
				return
			}
			ip := utilnet.ParseIPSloppy(a.GetIp())
			if ip == nil {
				plan.Invalid++
				continue
			}
			family := wanted.IPv4
			if utilnet.IsIPv6(ip) {
				family = wanted.IPv6
			}
			key := keyOf(family, ports)
			g := groups[key]
			if g == nil {
				g = &group{family: family, ports: ports}
				groups[key] = g
			}
			added++
			if len(g.endpoints) == Max { // another subset has the same ports
				continue
			}
			one := &discoveryv1.Endpoint{
				Addresses: []string{ip.String()}, Conditions: &discoveryv1.EndpointConditions{Ready: &ready},
				TargetRef: a.GetTargetRef(), NodeName: a.NodeName,
			}
			if a.GetHostname() != "" {
				one.Hostname = proto.String(a.GetHostname())
			}
			g.endpoints = append(g.endpoints, one)
		}
	}
	add(s.GetAddresses(), true)
	add(s.GetNotReadyAddresses(), false)
	plan.Skipped += len(s.GetAddresses()) + len(s.GetNotReadyAddresses()) - added
}

func keyOf(family string, ports []*discoveryv1.EndpointPort) string {
	texts := make([]string, 0, len(ports))
	for _, p := range ports {
		texts = append(texts, strings.Join([]string{
			p.GetName(), p.GetProtocol(), strconv.Itoa(int(p.GetPort())), p.GetAppProtocol(),
		}, "\x00"))
	}
	slices.Sort(texts)
	return family + "\x01" + strings.Join(texts, "\x01")
}

// sliceOf returns a new slice for Endpoints.
func sliceOf(e *corev1.Endpoints, g *group) *discoveryv1.EndpointSlice {
	labels := maps.Clone(e.GetMetadata().GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[endpoint.ServiceName], labels[endpoint.SliceManager] = e.GetMetadata().GetName(), Manager
	s := wanted.New(e, labels, &discoveryv1.EndpointSlice{AddressType: g.family, Ports: g.ports, Endpoints: g.endpoints})
	s.Metadata.Annotations = maps.Clone(e.GetMetadata().GetAnnotations())
	delete(s.Metadata.Annotations, endpoint.TriggerTime)
	delete(s.Metadata.Annotations, lastApplied)
	return s
}

// same says whether a slice is as it should be; the order of its endpoints does not matter.
func same(is, should *discoveryv1.EndpointSlice) bool {
	i, s := is.GetMetadata(), should.GetMetadata()
	return maps.Equal(i.GetLabels(), s.GetLabels()) && maps.Equal(i.GetAnnotations(), s.GetAnnotations()) &&
		slices.EqualFunc(i.GetOwnerReferences(), s.GetOwnerReferences(),
			func(a, b *metav1.OwnerReference) bool { return a.GetUid() == b.GetUid() }) &&
		semantic.Equal(
			&discoveryv1.EndpointSlice{Endpoints: ordered(is.GetEndpoints())},
			&discoveryv1.EndpointSlice{Endpoints: ordered(should.GetEndpoints())})
}

func ordered(all []*discoveryv1.Endpoint) []*discoveryv1.Endpoint {
	text := func(e *discoveryv1.Endpoint) string {
		return strings.Join(e.GetAddresses(), ",") + " " + e.GetTargetRef().GetUid()
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b *discoveryv1.Endpoint) int {
		return strings.Compare(text(a), text(b))
	})
}

// in returns a slice that is there as another one should be.
func in(was, next *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	m := object.Clone(was.GetMetadata())
	m.Labels, m.Annotations = next.GetMetadata().GetLabels(), next.GetMetadata().GetAnnotations()
	m.OwnerReferences = next.GetMetadata().GetOwnerReferences()
	next.Metadata = m
	return next
}
