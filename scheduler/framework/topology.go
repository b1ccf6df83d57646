package framework

// Topology divides the nodes of a snapshot by one of their labels. It is valid for one decision.
type Topology struct {
	key string
	// domains numbers the label's values; of is the domain of each node of the snapshot, NoDomain if it lacks the label.
	domains map[string]int32
	values  []string
	of      []int32
	without int
	// members are the nodes of each domain, by their places; nil before somebody asks.
	members [][]*NodeInfo
}

// NoDomain stands for the domain of a node that lacks the label.
const NoDomain = -1

func newTopology(key string, nodes []*NodeInfo) *Topology {
	t := &Topology{key: key, domains: map[string]int32{}, of: make([]int32, len(nodes))}
	for i, n := range nodes {
		value, ok := n.Node.GetMetadata().GetLabels()[key]
		if !ok {
			t.of[i] = NoDomain
			t.without++
			continue
		}
		d, ok := t.domains[value]
		if !ok {
			d = int32(len(t.domains)) //nolint:gosec // there are no 2^31 nodes
			t.domains[value] = d
			t.values = append(t.values, value)
		}
		t.of[i] = d
	}
	return t
}

// Domains is how many domains there are. They are numbered from 0.
func (t *Topology) Domains() int { return len(t.domains) }

// Without is how many nodes lack the label.
func (t *Topology) Without() int { return t.without }

// Of returns the domain of the i-th node of the snapshot.
func (t *Topology) Of(i int) int { return int(t.of[i]) }

// Find returns the domain of a node; NoDomain when it lacks the label, or has a value that no node of the snapshot
// has.
func (t *Topology) Find(n *NodeInfo) int {
	if i, ok := n.Place(); ok {
		return int(t.of[i]) // without a look at its labels, which are far away
	}
	if d, ok := t.domains[n.Node.GetMetadata().GetLabels()[t.key]]; ok {
		return int(d)
	}
	return NoDomain
}

// HasKey says whether a node has the label.
func (t *Topology) HasKey(n *NodeInfo) bool {
	if i, ok := n.Place(); ok {
		return t.of[i] != NoDomain
	}
	_, ok := n.Node.GetMetadata().GetLabels()[t.key]
	return ok
}

// NodesWith returns the nodes that have a label of that value. The slice must not be changed.
func (s *Snapshot) NodesWith(key, value string) []*NodeInfo {
	t := s.Topology(key)
	d, ok := t.domains[value]
	if !ok {
		return nil
	}
	return s.members(t)[d]
}

// NodesAround returns the nodes of the domains of t, a topology of the snapshot, that have any of the pods that are
// summed up; ok is false when there are more than a number of them. The slice must not be changed.
func (s *Snapshot) NodesAround(t *Topology, pods *Sums, limit int) (list []*NodeInfo, ok bool) {
	members, one, all := s.members(t), NoDomain, 0
	for d, sum := range pods.sums {
		if sum > 0 {
			one = d
			all += len(members[d])
		}
	}
	switch {
	case all > limit:
		return nil, false
	case all == 0:
		return nil, true
	case all == len(members[one]):
		return members[one], true
	}
	list = make([]*NodeInfo, 0, all)
	for d, sum := range pods.sums {
		if sum > 0 {
			list = append(list, members[d]...)
		}
	}
	return list, true
}

func (s *Snapshot) members(t *Topology) [][]*NodeInfo {
	if t.members == nil {
		t.members = make([][]*NodeInfo, t.Domains())
		for i, d := range t.of {
			if d != NoDomain {
				t.members[d] = append(t.members[d], s.nodes[i])
			}
		}
	}
	return t.members
}
