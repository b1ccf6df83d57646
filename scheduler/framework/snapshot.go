package framework

// Snapshot is the cluster as one decision sees it.
type Snapshot struct {
	nodes  []*NodeInfo
	byName map[string]int
	index  index
	images imageIndex
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot { return &Snapshot{byName: map[string]int{}, images: imageIndex{}} }

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
	case ok:
		s.index.changed(i, s.nodes[i], n)
		s.nodes[i] = n.at(i)
	default:
		s.byName[name] = len(s.nodes)
		s.nodes = append(s.nodes, n.at(len(s.nodes)))
		s.index.added(n)
	}
}
