package framework

// Snapshot is the cluster as one decision sees it.
type Snapshot struct {
	nodes  []*NodeInfo
	byName map[string]int
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot { return &Snapshot{byName: map[string]int{}} }

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

// Set brings one node up to date; nil removes it. It must not be called during a decision.
func (s *Snapshot) Set(name string, n *NodeInfo) {
	i, ok := s.byName[name]
	switch {
	case n == nil && !ok:
	case n == nil:
		last := len(s.nodes) - 1
		s.nodes[i] = s.nodes[last]
		s.byName[s.nodes[i].Name] = i
		s.nodes[last] = nil
		s.nodes = s.nodes[:last]
		delete(s.byName, name)
	case ok:
		s.nodes[i] = n
	default:
		s.byName[name] = len(s.nodes)
		s.nodes = append(s.nodes, n)
	}
}
