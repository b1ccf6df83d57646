// Package slices decides which EndpointSlices a service should have, from the service, the pods that it selects, their
// nodes and the slices that are there. It has no clock and asks nobody; the controller carries out what it says.
//
// It changes as few slices as it can, in this order (as Kubernetes does):
//
//	             endpoints wanted, by the ports that they have
//	                              │
//	1. each slice that is there keeps those of its endpoints that are wanted, as they are now;
//	   a slice that loses all of them is to go
//	                              │ what is in no slice
//	                              ▼
//	2. slices that change anyway are filled, the fullest first
//	                              │ what is left
//	                              ▼
//	3. the slice that it makes fullest takes it, or new ones do
//	                              │
//	                              ▼
//	4. slices to make take the names of slices to remove
//
// A service that has no endpoints of an address family has one empty slice of it, so that whoever waits for its slices
// sees that there is nothing.
package slices

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	utilnet "k8s.io/utils/net"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/endpoint"
)

// The address families.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

// Manager is who writes the slices of services with a selector.
const Manager = "endpointslice-controller.k8s.io"

// maxName is how long a name can be.
const maxName = 253

// Zone is the label of nodes that says where they are.
const Zone = "topology.kubernetes.io/zone"

// Input is what is decided on. Nothing in it is changed.
type Input struct {
	// Service has a selector.
	Service *corev1.Service
	// Pods are those that it selects.
	Pods []*corev1.Pod
	// Node returns a node; nil when there is none of that name.
	Node func(name string) *corev1.Node
	// Existing are the slices with the service's name that Manager writes, without those that are being deleted.
	Existing []*discoveryv1.EndpointSlice
	// Shares are the parts that zones have of the processors of all nodes, for hints by topology; nil when it cannot be
	// told.
	Shares map[string]float64
	// Max is how many endpoints a slice may have.
	Max int
}

// Plan is what to do. The slices are of Existing, or new objects that share parts with them.
type Plan struct {
	// Create, Update and Delete are slices to make, to change and to remove.
	Create, Update, Delete []*discoveryv1.EndpointSlice
	// Missing are pods that were left out because nobody knows their node; they are to be looked at again.
	Missing []string
	// Topology is what came of hints by topology, for each address family, where the service asks for them.
	Topology []Topology
}

// Topology is what came of hints by topology for one address family.
type Topology struct {
	// Family is the address family.
	Family string
	// Refused says why endpoints have no hints; empty where they have.
	Refused string
}

// Families returns the address families of a service.
func Families(s *corev1.Service) []string {
	var out []string
	for _, family := range []string{IPv4, IPv6} {
		if slices.Contains(s.GetSpec().GetIpFamilies(), family) {
			out = append(out, family)
		}
	}
	if len(out) > 0 {
		return out
	}
	if endpoint.HasAddress(s) {
		if utilnet.IsIPv6String(s.GetSpec().GetClusterIP()) {
			return []string{IPv6}
		}
		return []string{IPv4}
	}
	return []string{IPv4, IPv6}
}

// Decide returns what is to be done.
func Decide(in Input) Plan {
	var plan Plan
	families := Families(in.Service)
	for _, family := range families {
		d := decision{Input: in, family: family}
		d.decide(&plan)
	}
	for _, s := range in.Existing {
		if !slices.Contains(families, s.GetAddressType()) {
			plan.Delete = append(plan.Delete, s)
		}
	}
	return plan
}

// decision is that about one address family.
type decision struct {
	Input
	family string
	// groups are the endpoints by their ports, order their keys as they came.
	groups map[string]*group
	order  []string
}

// group is what has the same ports.
type group struct {
	ports []*discoveryv1.EndpointPort
	// wanted are the endpoints that are in no slice yet, by what identifies them.
	wanted map[string]*discoveryv1.Endpoint
	// drafts are the slices that are there.
	drafts []*draft
}

// draft is a slice on its way to what it should be.
type draft struct {
	// was is the slice as it is; nil for a new one.
	was       *discoveryv1.EndpointSlice
	ports     []*discoveryv1.EndpointPort
	endpoints []*discoveryv1.Endpoint
	labels    map[string]string
	fate      fate
}

// fate is what becomes of a draft.
type fate int

const (
	stays fate = iota
	changes
	goes
)

func (d *decision) decide(plan *Plan) {
	foreign := d.collect(plan)
	var drafts []*draft
	for _, key := range d.order {
		drafts = append(drafts, d.fill(d.groups[key])...)
	}
	drafts = d.placeholder(drafts)
	plan.Topology = append(plan.Topology, d.hint(drafts)...)
	d.finish(plan, drafts)
	plan.Delete = append(plan.Delete, foreign...)
}

// collect finds out what is wanted and what is there, and returns the slices of another service of the same name.
func (d *decision) collect(plan *Plan) (foreign []*discoveryv1.EndpointSlice) {
	d.groups = map[string]*group{}
	for _, p := range d.Pods {
		if !endpoint.Counts(p) {
			continue
		}
		g := d.group(d.portsOf(p))
		node := d.Node(p.GetSpec().GetNodeName())
		if node == nil && !d.Service.GetSpec().GetPublishNotReadyAddresses() {
			if name := p.GetMetadata().GetName(); !slices.Contains(plan.Missing, name) {
				plan.Missing = append(plan.Missing, name)
			}
			continue
		}
		if e := d.endpointOf(p, node); len(e.GetAddresses()) > 0 {
			g.wanted[identity(e)] = e
		}
	}
	wanted := len(d.order)
	for _, s := range d.Existing {
		switch {
		case s.GetAddressType() != d.family:
		case !ownedBy(s, d.Service):
			foreign = append(foreign, s)
		default:
			g := d.group(s.GetPorts())
			g.drafts = append(g.drafts, &draft{was: s, ports: s.GetPorts(), endpoints: s.GetEndpoints()})
		}
	}
	for _, key := range d.order[wanted:] { // ports that nothing has any more
		for _, draft := range d.groups[key].drafts {
			draft.fate = goes
		}
	}
	for _, g := range d.groups {
		slices.SortFunc(g.drafts, func(a, b *draft) int {
			return strings.Compare(a.was.GetMetadata().GetName(), b.was.GetMetadata().GetName())
		})
	}
	return foreign
}

// group returns the group of some ports, whatever their order.
func (d *decision) group(ports []*discoveryv1.EndpointPort) *group {
	key := portsKey(ports)
	g := d.groups[key]
	if g == nil {
		g = &group{ports: ports, wanted: map[string]*discoveryv1.Endpoint{}}
		d.groups[key] = g
		d.order = append(d.order, key)
	}
	return g
}

func portsKey(ports []*discoveryv1.EndpointPort) string {
	texts := make([]string, 0, len(ports))
	for _, p := range ports {
		number := "*"
		if p.Port != nil {
			number = strconv.Itoa(int(p.GetPort()))
		}
		texts = append(texts, strings.Join([]string{p.GetName(), p.GetProtocol(), number, p.GetAppProtocol()}, "\x00"))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\x01")
}

// portsOf returns the ports of a pod that the service's stand for. Those that the pod does not have are left out.
func (d *decision) portsOf(p *corev1.Pod) []*discoveryv1.EndpointPort {
	var ports []*discoveryv1.EndpointPort
	for _, port := range d.Service.GetSpec().GetPorts() {
		number, err := endpoint.Port(p, port)
		if err != nil {
			continue
		}
		ports = append(ports, &discoveryv1.EndpointPort{
			Name: proto.String(port.GetName()), Port: proto.Int32(number),
			Protocol: proto.String(port.GetProtocol()), AppProtocol: port.AppProtocol,
		})
	}
	return ports
}

// endpointOf returns the endpoint that a pod is, without addresses when it has none of the family. (spec: WORK-5)
func (d *decision) endpointOf(p *corev1.Pod, node *corev1.Node) *discoveryv1.Endpoint {
	m := p.GetMetadata()
	serving, terminating := availability.Ready(p), m.GetDeletionTimestamp() != nil
	e := &discoveryv1.Endpoint{
		Addresses: addresses(p, d.family),
		Conditions: &discoveryv1.EndpointConditions{
			Ready:   proto.Bool(d.Service.GetSpec().GetPublishNotReadyAddresses() || serving && !terminating),
			Serving: &serving, Terminating: &terminating,
		},
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
		},
	}
	if name := p.GetSpec().GetNodeName(); name != "" {
		e.NodeName = &name
	}
	if zone := node.GetMetadata().GetLabels()[Zone]; zone != "" {
		e.Zone = &zone
	}
	if name := endpoint.Hostname(p, d.Service); name != "" {
		e.Hostname = &name
	}
	return e
}

// addresses returns a pod's addresses of a family, each written as programs write it.
func addresses(p *corev1.Pod, family string) []string {
	var out []string
	for _, ip := range p.GetStatus().GetPodIPs() {
		text := ip.GetIp()
		if parsed := utilnet.ParseIPSloppy(text); parsed != nil {
			text = parsed.String()
		}
		if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() == (family == IPv6) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// identity is what makes an endpoint the same one: it may change otherwise and stays where it is.
func identity(e *discoveryv1.Endpoint) string {
	sorted := e.GetAddresses()
	if len(sorted) > 1 && !slices.IsSorted(sorted) {
		sorted = slices.Sorted(slices.Values(sorted))
	}
	return strings.Join(sorted, ",") + "\x00" + e.GetHostname() + "\x00" +
		e.GetTargetRef().GetNamespace() + "/" + e.GetTargetRef().GetName()
}

// same says whether two endpoints of one identity are the same otherwise, but for their hints.
func same(a, b *discoveryv1.Endpoint) bool {
	x, y := a.GetTargetRef(), b.GetTargetRef()
	return equal(a.NodeName, b.NodeName) && equal(a.Zone, b.Zone) &&
		sameConditions(a.GetConditions(), b.GetConditions()) && (x == nil) == (y == nil) &&
		x.GetKind() == y.GetKind() && x.GetUid() == y.GetUid() && x.GetApiVersion() == y.GetApiVersion() &&
		x.GetFieldPath() == y.GetFieldPath()
}

func sameConditions(a, b *discoveryv1.EndpointConditions) bool {
	var none discoveryv1.EndpointConditions
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return equal(a.Ready, b.Ready) && equal(a.Serving, b.Serving) && equal(a.Terminating, b.Terminating)
}

// equal says whether two optional values are both absent, or the same.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// fill has the slices of a group hold what is wanted, and returns them with the new ones.
func (d *decision) fill(g *group) []*draft {
	if len(g.drafts) > 0 && g.drafts[0].fate == goes {
		return g.drafts
	}
	for _, s := range g.drafts {
		d.keep(g, s)
	}
	left := slices.SortedFunc(maps.Values(g.wanted), func(a, b *discoveryv1.Endpoint) int {
		return cmp.Or(strings.Compare(a.GetTargetRef().GetName(), b.GetTargetRef().GetName()),
			slices.Compare(a.GetAddresses(), b.GetAddresses()))
	})
	var changing []*draft
	for _, s := range g.drafts {
		if s.fate == changes {
			changing = append(changing, s)
		}
	}
	slices.SortStableFunc(changing, func(a, b *draft) int { return cmp.Compare(len(b.endpoints), len(a.endpoints)) })
	for _, s := range changing {
		left = d.add(s, left)
	}
	for len(left) > 0 {
		s := d.closest(g.drafts, len(left))
		if s == nil {
			s = d.fresh(g.ports)
			g.drafts = append(g.drafts, s)
		}
		left = d.add(s, left)
	}
	return g.drafts
}

// keep leaves in a slice the endpoints that are wanted, as they are now.
func (d *decision) keep(g *group, s *draft) {
	var kept []*discoveryv1.Endpoint
	changed := false
	for _, e := range s.was.GetEndpoints() {
		key := identity(e)
		now, ok := g.wanted[key]
		if !ok {
			continue
		}
		delete(g.wanted, key)
		changed = changed || !same(now, e)
		kept = append(kept, now)
	}
	labels, relabelled := Labels(s.was, d.Service, Manager)
	switch {
	case changed || len(kept) != len(s.was.GetEndpoints()):
		s.endpoints, s.labels, s.fate = kept, labels, changes
		if len(kept) == 0 {
			s.fate = goes
		}
	case relabelled:
		s.endpoints, s.labels, s.fate = slices.Clone(s.endpoints), labels, changes
	}
}

// add moves as many endpoints to a slice as fit, and returns those that are left.
func (d *decision) add(s *draft, left []*discoveryv1.Endpoint) []*discoveryv1.Endpoint {
	n := min(len(left), max(d.Max-len(s.endpoints), 0))
	if n > 0 {
		s.endpoints = append(s.endpoints[:len(s.endpoints):len(s.endpoints)], left[:n]...)
		s.fate = changes
	}
	return left[n:]
}

// closest returns the slice that stays as it is and that n more endpoints would make fullest; nil when they fit in
// none.
func (d *decision) closest(drafts []*draft, n int) *draft {
	var best *draft
	free := d.Max
	for _, s := range drafts {
		if rest := d.Max - len(s.endpoints) - n; s.was != nil && s.fate == stays && n < d.Max && rest >= 0 && rest < free {
			best, free = s, rest
		}
	}
	return best
}

// placeholder adds an empty slice when there would be none, or keeps the one that is there.
func (d *decision) placeholder(drafts []*draft) []*draft {
	if slices.ContainsFunc(drafts, func(s *draft) bool { return s.fate != goes }) {
		return drafts
	}
	empty := d.fresh(nil)
	if len(drafts) == 1 {
		s := drafts[0]
		if len(s.was.GetEndpoints()) == 0 && len(s.was.GetPorts()) == 0 &&
			maps.Equal(empty.labels, s.was.GetMetadata().GetLabels()) {
			s.fate = stays
			return drafts
		}
	}
	return append(drafts, empty)
}

// fresh returns a new slice with the given ports.
func (d *decision) fresh(ports []*discoveryv1.EndpointPort) *draft {
	labels, _ := Labels(nil, d.Service, Manager)
	return &draft{ports: ports, labels: labels, fate: changes}
}

// finish makes the plan of the drafts. New slices take the names of those that go: that is one write instead of two.
func (d *decision) finish(plan *Plan, drafts []*draft) {
	var made, gone []*draft
	for _, s := range drafts {
		switch {
		case s.was == nil:
			made = append(made, s)
		case s.fate == goes:
			gone = append(gone, s)
		case s.fate == changes:
			plan.Update = append(plan.Update, s.changed())
		}
	}
	for len(made) > 0 && len(gone) > 0 {
		s := made[len(made)-1]
		s.was = gone[0].was
		plan.Update = append(plan.Update, s.changed())
		made, gone = made[:len(made)-1], gone[1:]
	}
	for _, s := range gone {
		plan.Delete = append(plan.Delete, s.was)
	}
	if d.Service.GetMetadata().GetDeletionTimestamp() != nil {
		return // the garbage collector removes slices of this service: do not work against it
	}
	for _, s := range made {
		plan.Create = append(plan.Create, d.made(s))
	}
}

func (d *decision) made(s *draft) *discoveryv1.EndpointSlice {
	return New(d.Service, s.labels, &discoveryv1.EndpointSlice{
		AddressType: d.family, Ports: s.ports, Endpoints: s.endpoints,
	})
}

// changed returns the slice as it should be, of the revision that it is.
func (s *draft) changed() *discoveryv1.EndpointSlice {
	next := s.was.Shallow()
	next.Metadata = object.Clone(s.was.GetMetadata())
	if s.labels != nil {
		next.Metadata.Labels = s.labels
	}
	next.Ports, next.Endpoints = s.ports, s.endpoints
	return next
}

// New completes a new slice: it is named for its owner, and has the given labels.
func New(owner object.Object, labels map[string]string, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	m := owner.GetMetadata()
	prefix := m.GetName()
	if len(prefix) < maxName {
		prefix += "-"
	}
	kind := owner.ObjectKind()
	s.Metadata = &metav1.ObjectMeta{
		GenerateName: prefix, Namespace: m.GetNamespace(), Labels: labels,
		OwnerReferences: []*metav1.OwnerReference{{
			ApiVersion: kind.APIVersion(), Kind: kind.Kind, Name: m.GetName(), Uid: m.GetUid(),
			Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true),
		}},
	}
	return s
}

// Labels returns the labels that a slice of a service should have: those of the service, with some that Kubernetes
// reserves; and whether the slice, if there is one, has others. Those that are reserved are not compared.
func Labels(
	s *discoveryv1.EndpointSlice, service *corev1.Service, manager string,
) (want map[string]string, other bool) {
	want = maps.Clone(service.GetMetadata().GetLabels())
	if want == nil {
		want = map[string]string{}
	}
	maps.DeleteFunc(want, reserved)
	n := 0
	for key, value := range s.GetMetadata().GetLabels() {
		if reserved(key, value) {
			continue
		}
		n++
		if has, ok := want[key]; !ok || has != value {
			other = true
		}
	}
	other = other || n != len(want)
	if !endpoint.HasAddress(service) {
		want[endpoint.Headless] = ""
	}
	want[endpoint.ServiceName] = service.GetMetadata().GetName()
	want[endpoint.SliceManager] = manager
	return want, other
}

func reserved(key, _ string) bool {
	return key == endpoint.ServiceName || key == endpoint.SliceManager || key == endpoint.Headless
}

func ownedBy(s *discoveryv1.EndpointSlice, service *corev1.Service) bool {
	for _, r := range s.GetMetadata().GetOwnerReferences() {
		if r.GetUid() == service.GetMetadata().GetUid() && r.GetKind() == "Service" && r.GetApiVersion() == "v1" {
			return true
		}
	}
	return false
}
