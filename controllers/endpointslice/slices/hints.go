package slices

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/rules/resources"
)

// Hints say who should use an endpoint. A service asks for them in one of two ways:
//
//	annotation topology-mode: Auto    zones get as many endpoints as their share of all processors; endpoints of a zone
//	                                  that has more are lent to one that has fewer. All or nothing
//	spec.trafficDistribution          each endpoint is for its own zone, and with PreferSameNode for its own node

const (
	// modeAnnotation asks for hints by topology, as does olderAnnotation, which counts first.
	modeAnnotation  = "service.kubernetes.io/topology-mode"
	olderAnnotation = "service.kubernetes.io/topology-aware-hints"
	// overload is by how much more an endpoint of one zone may have to do than if all were used alike.
	overload = 0.2
)

// ByTopology says whether a service asks for hints by the topology of the nodes.
func ByTopology(s *corev1.Service) bool {
	set := s.GetMetadata().GetAnnotations()
	value, ok := set[olderAnnotation]
	if !ok {
		value = set[modeAnnotation]
	}
	return value == "Auto" || value == "auto"
}

// ready says whether an endpoint takes traffic.
func ready(e *discoveryv1.Endpoint) bool { return e.GetConditions().GetReady() }

// hint gives the endpoints of drafts the hints that the service asks for, and takes from them any others.
func (d *decision) hint(drafts []*draft) []Topology {
	spec := d.Service.GetSpec()
	if ByTopology(d.Service) {
		refused := d.hintByTopology(drafts)
		if refused != "" {
			unhint(drafts)
		}
		return []Topology{{d.family, refused}}
	}
	switch spec.GetTrafficDistribution() {
	case "PreferClose", "PreferSameZone":
		hintClose(drafts, false)
	case "PreferSameNode":
		hintClose(drafts, true)
	default:
		unhint(drafts)
	}
	return nil
}

// set gives an endpoint of a draft its hints, and has the slice change if it stayed as it was.
func (s *draft) set(i int, h *discoveryv1.EndpointHints) {
	if sameHints(s.endpoints[i].GetHints(), h) {
		return
	}
	if s.fate == stays {
		s.fate = changes
		s.endpoints = slices.Clone(s.endpoints)
	}
	e := s.endpoints[i].Shallow()
	e.Hints = h
	s.endpoints[i] = e
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	return (a == nil) == (b == nil) &&
		slices.EqualFunc(a.GetForZones(), b.GetForZones(),
			func(x, y *discoveryv1.ForZone) bool { return x.GetName() == y.GetName() }) &&
		slices.EqualFunc(a.GetForNodes(), b.GetForNodes(),
			func(x, y *discoveryv1.ForNode) bool { return x.GetName() == y.GetName() })
}

func unhint(drafts []*draft) {
	for _, s := range drafts {
		if s.fate == goes {
			continue
		}
		for i := range s.endpoints {
			s.set(i, nil)
		}
	}
}

func forZone(zone string) []*discoveryv1.ForZone { return []*discoveryv1.ForZone{{Name: zone}} }

// hintClose has each endpoint that is ready be for its own zone, and perhaps for its own node.
func hintClose(drafts []*draft, node bool) {
	for _, s := range drafts {
		if s.fate == goes {
			continue
		}
		for i, e := range s.endpoints {
			if !ready(e) {
				continue
			}
			var h discoveryv1.EndpointHints
			if e.Zone != nil {
				h.ForZones = forZone(e.GetZone())
			}
			if e.NodeName != nil && node {
				h.ForNodes = []*discoveryv1.ForNode{{Name: e.GetNodeName()}}
			}
			if h.ForZones == nil && h.ForNodes == nil {
				s.set(i, nil)
			} else {
				s.set(i, &h)
			}
		}
	}
}

// allotment is how many endpoints should be for a zone.
type allotment struct {
	least, most int
	desired     float64
}

// hintByTopology gives endpoints to zones by their shares, or says why it cannot. Slices that stay as they are, and
// whose hints are still possible, stay.
func (d *decision) hintByTopology(drafts []*draft) (refused string) {
	total := 0
	for _, s := range drafts {
		if s.fate != goes {
			for _, e := range s.endpoints {
				if ready(e) {
					total++
				}
			}
		}
	}
	allotments, refused := allot(d.Shares, total)
	if refused != "" {
		return refused
	}
	given := map[string]int{}
	var open []*draft
	for _, s := range drafts {
		switch s.fate {
		case goes:
		case changes:
			open = append(open, s)
		case stays:
			if has := zonesOf(s, given, allotments); has != nil {
				for zone, n := range has {
					given[zone] += n
				}
			} else {
				open = append(open, s)
			}
		}
	}
	hints := make([][]string, len(open)) // zones by draft and endpoint
	for k, s := range open {
		hints[k] = make([]string, len(s.endpoints))
		for i, e := range s.endpoints {
			if !ready(e) {
				continue
			}
			if e.GetZone() == "" {
				return "One or more endpoints do not have a zone specified"
			}
			given[e.GetZone()]++
			hints[k][i] = e.GetZone()
		}
	}
	giving, receiving := imbalance(allotments, given)
	for k := range hints {
		lend(hints[k], giving, receiving)
	}
	for k, s := range open {
		for i, zone := range hints[k] {
			if zone != "" {
				s.set(i, &discoveryv1.EndpointHints{ForZones: forZone(zone)})
			}
		}
	}
	return ""
}

// allot says how many of n endpoints each zone should have.
func allot(shares map[string]float64, n int) (out map[string]allotment, refused string) {
	switch {
	case shares == nil:
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	case len(shares) > n:
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", n, len(shares))
	}
	out = map[string]allotment{}
	sum := 0
	for zone, share := range shares {
		desired := share * float64(n)
		least := int(math.Ceil(desired * (1 / (1 + overload))))
		out[zone] = allotment{least: least, desired: max(desired, float64(least))}
		sum += least
	}
	if sum > n {
		return nil, fmt.Sprintf("Unable to allocate minimum required endpoints to each zone without exceeding overload "+
			"threshold (%d endpoints, %d zones)", n, len(shares))
	}
	for zone, a := range out {
		a.most = a.least + n - sum
		out[zone] = a
	}
	return out, ""
}

// zonesOf counts the hints of a slice by zone; nil when the slice cannot stay as it is: an endpoint has no hint, or
// one for a zone that needs none, or a zone would have more than it may beside what was given before.
func zonesOf(s *draft, given map[string]int, allotments map[string]allotment) map[string]int {
	out := map[string]int{}
	for _, e := range s.endpoints {
		if !ready(e) {
			continue
		}
		if len(e.GetHints().GetForZones()) == 0 {
			return nil
		}
		for _, z := range e.GetHints().GetForZones() {
			if _, ok := allotments[z.GetName()]; !ok {
				return nil
			}
			out[z.GetName()]++
		}
	}
	for zone, n := range out {
		if n+given[zone] > allotments[zone].most {
			return nil
		}
	}
	return out
}

// imbalance says how many endpoints zones should give to others, and receive from them.
func imbalance(allotments map[string]allotment, given map[string]int) (giving, receiving map[string]int) {
	over, under := map[string]float64{}, map[string]float64{}
	for zone, a := range allotments {
		if diff := float64(given[zone]) - a.desired; diff > 0 {
			over[zone] = diff
		} else if diff < 0 {
			under[zone] = -diff
		}
	}
	giving, receiving = map[string]int{}, map[string]int{}
	for {
		from, much := greatest(over)
		to, little := greatest(under)
		if from == "" || to == "" || much < 1 && little < 1 || much < 0.5 || little < 0.5 {
			return giving, receiving
		}
		giving[from]++
		over[from]--
		receiving[to]++
		under[to]--
	}
}

// greatest returns the zone with the greatest number, the first by name of several.
func greatest(zones map[string]float64) (zone string, n float64) {
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		if zones[z] > n {
			zone, n = z, zones[z]
		}
	}
	return zone, n
}

// lend gives hints of zones that have too many to zones that have too few.
func lend(hints []string, giving, receiving map[string]int) {
	for i, from := range hints {
		if from == "" || giving[from] == 0 {
			continue
		}
		for _, to := range slices.Sorted(maps.Keys(receiving)) {
			if receiving[to] == 0 {
				continue
			}
			hints[i] = to
			giving[from]--
			receiving[to]--
			break
		}
	}
}

// Shares returns the part that each zone has of the processors of all nodes that are ready and not for the control
// plane. It is nil when a node does not say its zone or its processors, and when there is one zone.
func Shares(nodes []*corev1.Node) map[string]float64 {
	milli := map[string]int64{}
	total := int64(0)
	for _, n := range nodes {
		labels := n.GetMetadata().GetLabels()
		if _, ok := labels["node-role.kubernetes.io/control-plane"]; ok {
			continue
		}
		if _, ok := labels["node-role.kubernetes.io/master"]; ok {
			continue
		}
		if !nodeReady(n) {
			continue
		}
		cpu := processors(n)
		zone := labels[Zone]
		if zone == "" || cpu == 0 {
			return nil
		}
		milli[zone] += cpu
		total += cpu
	}
	if len(milli) < 2 {
		return nil
	}
	out := make(map[string]float64, len(milli))
	for zone, n := range milli {
		out[zone] = float64(n) / float64(total)
	}
	return out
}

// SameShare says whether two states of a node are the same for Shares.
func SameShare(a, b *corev1.Node) bool {
	x, y := a.GetMetadata().GetLabels(), b.GetMetadata().GetLabels()
	for _, key := range []string{Zone, "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		v, has := x[key]
		w, had := y[key]
		if v != w || has != had {
			return false
		}
	}
	return nodeReady(a) == nodeReady(b) && processors(a) == processors(b)
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}

// processors are those that pods can have on a node, in thousandths.
func processors(n *corev1.Node) int64 {
	q, _ := resources.ListOf(n.GetStatus().GetAllocatable()).Get(resources.CPU)
	return q.MilliValue()
}
