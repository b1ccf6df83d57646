package framework

import (
	"slices"
)

const (
	// maxCounters bounds the counters of a snapshot: with more selectors than that in use, the one that has not been
	// asked for the longest is counted anew.
	maxCounters = 512
	// maxTopologies bounds the labels that nodes are divided by.
	maxTopologies = 64
)

// index is what a snapshot keeps up to date for the plugins that ask for it: a NodeIndex. Pods come and go all the
// time, and cost it what has changed; nodes and their labels seldom change, and then the topologies are made anew.
type index struct {
	topologies map[string]*Topology
	counters   map[string]*Counter
	asked      uint64
}

// Topology returns the division of the nodes by a label.
func (s *Snapshot) Topology(key string) *Topology {
	t, ok := s.index.topologies[key]
	if !ok {
		if s.index.topologies == nil {
			s.index.topologies = map[string]*Topology{}
		}
		if len(s.index.topologies) == maxTopologies {
			s.index.forgetTopologies()
		}
		t = newTopology(key, s.nodes)
		s.index.topologies[key] = t
	}
	return t
}

// Counter returns the counts of the pods that a query selects.
func (s *Snapshot) Counter(q *PodQuery) *Counter {
	x := &s.index
	x.asked++
	c, ok := x.counters[q.text]
	if !ok {
		if x.counters == nil {
			x.counters = map[string]*Counter{}
		}
		x.makeRoom()
		c = &Counter{query: q, namespaces: s.namespaces, counts: make([]int32, len(s.nodes))}
		for i, n := range s.nodes {
			c.counts[i] = c.count(n.pods)
		}
		x.counters[q.text] = c
	}
	c.used = x.asked
	return c
}

func (x *index) makeRoom() {
	if len(x.counters) < maxCounters {
		return
	}
	var oldest *Counter
	for _, c := range x.counters {
		if oldest == nil || c.used < oldest.used {
			oldest = c
		}
	}
	delete(x.counters, oldest.query.text)
}

// Added makes room for the node.
func (x *index) Added(n *NodeInfo) {
	x.forgetTopologies()
	for _, c := range x.counters {
		c.counts = append(c.counts, c.count(n.pods))
	}
}

// Removed puts the last node into the place of the one that has gone.
func (x *index) Removed(n *NodeInfo) {
	x.forgetTopologies()
	i := int(n.place)
	for _, c := range x.counters {
		last := len(c.counts) - 1
		c.counts[i] = c.counts[last]
		c.counts = c.counts[:last]
	}
}

// Changed counts what came and went.
func (x *index) Changed(was, now *NodeInfo, went, came []*PodInfo) {
	for key := range x.topologies {
		a, hadA := was.Node.GetMetadata().GetLabels()[key]
		b, hasB := now.Node.GetMetadata().GetLabels()[key]
		if a != b || hadA != hasB {
			x.forgetTopologies()
			break
		}
	}
	for _, c := range x.counters {
		c.set(int(was.place), went, came)
	}
}

// replace takes the newer state of a node whose older one stays.
func (x *index) replace(n *NodeInfo) {
	for _, t := range x.topologies {
		if t.members != nil && t.of[n.place] != NoDomain {
			list := t.members[t.of[n.place]]
			i, _ := slices.BinarySearchFunc(list, n.place, (*NodeInfo).comparePlace)
			list[i] = n
		}
	}
}

// forgetMembers has the members of domains found anew.
func (x *index) forgetMembers() {
	for _, t := range x.topologies {
		t.members = nil
	}
}

// forgetNamespaces forgets what depends on the labels of namespaces, which seldom change.
func (x *index) forgetNamespaces() {
	for text, c := range x.counters {
		if c.query.choosesNamespaces() {
			delete(x.counters, text)
		}
	}
}

func (x *index) forgetTopologies() {
	clear(x.topologies)
	for _, c := range x.counters {
		c.sums = nil
	}
}
