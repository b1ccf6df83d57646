package framework

// Snapshot is the cluster as one decision sees it.
type Snapshot struct {
	nodes  []*NodeInfo
	byName map[string]int
	index  index
	images imageIndex
	terms  termIndex
	// namespaces are the labels of namespaces that have any.
	namespaces Namespaces
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{byName: map[string]int{}, images: imageIndex{}, namespaces: Namespaces{}}
}

// Nodes returns all nodes that have an object. The slice must not be changed, nor kept beyond the decision.
func (s *Snapshot) Nodes() []*NodeInfo { return s.nodes }

// Node returns a node by name, nil when there is none.
func (s *Snapshot) Node(name string) *NodeInfo {
	i, ok := s.byName[name]
	if !ok {
		return nil
	}
	return s.nodes[i]
}

// Set brings one node up to date; nil removes it. It keeps a copy, which knows its place. It must not be called during a
// decision.
func (s *Snapshot) Set(name string, n *NodeInfo) {
	i, ok := s.byName[name]
	was, now := changedPods(s.Node(name).podsOrNone(), n.podsOrNone())
	s.images.move(s.Node(name).imagesOrNone(), n.imagesOrNone())
	switch {
	case n == nil && !ok:
	case n == nil:
		last := len(s.nodes) - 1
		s.nodes[i] = s.nodes[last].at(i)
		s.byName[s.nodes[i].Name] = i
		s.nodes[last] = nil
		s.nodes = s.nodes[:last]
		delete(s.byName, name)
		s.index.removed(i)
		s.terms.set(name, i, nil, was, now)
	case ok:
		s.index.changed(i, s.nodes[i], n, was, now)
		s.nodes[i] = n.at(i)
		s.terms.set(name, i, s.index.topologies, was, now)
	default:
		s.byName[name] = len(s.nodes)
		s.nodes = append(s.nodes, n.at(len(s.nodes)))
		s.index.added(n)
		s.terms.set(name, s.byName[name], nil, was, now)
	}
}

// changedPods returns the pods of a node that went or are in an older state, and those that came or are in a newer one. Most changes
// are one pod that comes or goes, or a newer state of one, so that the pods that stayed are told by their place.
func changedPods(was, now []*PodInfo) (went, came []*PodInfo) {
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	return was, now
}
