package framework

import (
	"slices"

	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
)

// TermKind says what a term of a pod means for another pod that it selects.
type TermKind int

// The kinds. PreferredAffinity is also for anti-affinity, whose weights are negative.
const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	termKinds
)

// maxTermSums bounds the terms whose sums are kept, which are as long as there are domains.
const maxTermSums = 512

// Term is a term that pods of the snapshot have, of any number of pods that have the same. It is valid for one
// decision.
type Term struct {
	*PodTerm
	// pods is how many have it.
	pods int
	// weights are the sums of the weights by node. By name, since nodes change their places. Invariant: none is 0.
	weights map[string]int64
	// sums are the weights by domain of topology, nil before somebody asks.
	sums     []int64
	topology *Topology
}

// termIndex keeps the terms in use, by their text, and finds those that could select a pod. Invariant: each has a pod.
type termIndex struct {
	terms [termKinds]map[string]*Term
	found [termKinds]map[termPlace][]*Term
	// summed are the terms that have sums, some that are gone included.
	summed []*Term
	// index has the topologies.
	index *index
}

// termPlace is where a term is filed: under a namespace, "" for terms that choose namespaces by their labels, and a
// label that pods must have to be selected; no key for terms that require none.
type termPlace struct{ namespace, key, value string }

// places returns where a term is filed. A pod looks at each of these at most once.
func (t *PodTerm) places() []termPlace {
	q := t.Pods
	namespaces := q.namespaces
	if q.byLabels != nil {
		namespaces = []string{""}
	}
	key, values := "", []string{""}
	requirements, _ := q.selector.Requirements()
	for _, r := range requirements {
		if r.Operator() == selection.Equals || r.Operator() == selection.In {
			key, values = r.Key(), r.Values().UnsortedList()
			break
		}
	}
	var places []termPlace
	for _, n := range namespaces {
		for _, v := range values {
			places = append(places, termPlace{n, key, v})
		}
	}
	return places
}

// Added takes the terms of a node's pods.
func (x *termIndex) Added(n *NodeInfo) { x.set(n, nil, n.pods) }

// Changed takes the terms of the pods that came for those of the pods that went.
func (x *termIndex) Changed(was, _ *NodeInfo, went, came []*PodInfo) { x.set(was, went, came) }

// Removed takes the terms of a node's pods out.
func (x *termIndex) Removed(n *NodeInfo) { x.set(n, n.pods, nil) }

// set takes the pods that a node has now for those that it had. The topologies are as they are after the change; those
// that the change made invalid are not there.
func (x *termIndex) set(n *NodeInfo, was, now []*PodInfo) {
	for _, p := range now {
		x.move(n, p.Affinity, 1)
	}
	for _, p := range was {
		x.move(n, p.Affinity, -1)
	}
}

func (x *termIndex) move(n *NodeInfo, a *PodAffinity, by int) {
	if a == nil {
		return
	}
	for kind, list := range [termKinds][]PodTerm{RequiredAffinity: a.Affinity, RequiredAntiAffinity: a.AntiAffinity,
		PreferredAffinity: a.Preferred} {
		for i := range list {
			t := x.use(TermKind(kind), &list[i], by)
			t.move(n, x.index.topologies[t.Key], list[i].Weight*int64(by))
		}
	}
}

// use counts one more or less pod with the term.
func (x *termIndex) use(kind TermKind, p *PodTerm, by int) *Term {
	t, ok := x.terms[kind][p.text]
	if !ok {
		t = &Term{PodTerm: p, weights: map[string]int64{}}
		if x.terms[kind] == nil {
			x.terms[kind], x.found[kind] = map[string]*Term{}, map[termPlace][]*Term{}
		}
		x.terms[kind][p.text] = t
		for _, at := range p.places() {
			x.found[kind][at] = append(x.found[kind][at], t)
		}
	}
	if t.pods += by; t.pods == 0 {
		delete(x.terms[kind], p.text)
		for _, at := range t.places() {
			list := slices.DeleteFunc(x.found[kind][at], func(o *Term) bool { return o == t })
			if x.found[kind][at] = list; len(list) == 0 {
				delete(x.found[kind], at)
			}
		}
	}
	return t
}

// move changes the weight of a node. topology is the present one, nil when there is none.
func (t *Term) move(n *NodeInfo, topology *Topology, by int64) {
	if t.weights[n.Name] += by; t.weights[n.Name] == 0 {
		delete(t.weights, n.Name)
	}
	if t.sums == nil {
		return
	}
	if t.topology != topology {
		t.sums, t.topology = nil, nil
		return
	}
	if d := topology.of[n.place]; d != NoDomain {
		t.sums[d] += by
	}
}

// Terms hands to visit the terms of the pods of the snapshot that select the pod.
func (s *Snapshot) Terms(kind TermKind, pod *corev1.Pod, visit func(*Term)) {
	found := s.terms.found[kind]
	if len(found) == 0 {
		return
	}
	m := pod.GetMetadata()
	look := func(at termPlace) {
		for _, t := range found[at] {
			if t.Pods.Counts(pod, s.namespaces) {
				visit(t)
			}
		}
	}
	for _, namespace := range [...]string{m.GetNamespace(), ""} {
		look(termPlace{namespace: namespace})
		for k, v := range m.GetLabels() {
			look(termPlace{namespace, k, v})
		}
	}
}

// TermSums returns the division of the nodes by the term's key and the weights of a term in each domain, which must
// not be changed.
func (s *Snapshot) TermSums(t *Term) (*Topology, []int64) {
	topology := s.Topology(t.Key)
	if t.sums != nil && t.topology == topology {
		return topology, t.sums
	}
	if t.sums == nil {
		s.terms.makeRoom()
		s.terms.summed = append(s.terms.summed, t)
	}
	t.topology, t.sums = topology, make([]int64, topology.Domains())
	for node, weight := range t.weights {
		if d := topology.of[s.byName[node]]; d != NoDomain {
			t.sums[d] += weight
		}
	}
	return topology, t.sums
}

// makeRoom forgets all sums when there are too many.
func (x *termIndex) makeRoom() {
	if len(x.summed) < maxTermSums {
		return
	}
	for _, t := range x.summed {
		t.sums, t.topology = nil, nil
	}
	clear(x.summed)
	x.summed = x.summed[:0]
}
