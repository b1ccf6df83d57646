package framework

// Snapshot is the cluster as one decision sees it.
type Snapshot struct {
	nodes  []*NodeInfo
	memory blocks
	// versions tell the states of nodes apart, by their places; 0 is for nodes on which room is kept for a pod, about
	// which more must be asked than what they are like.
	versions []uint64
	version  uint64
	byName   map[string]int
	index    index
	images   imageIndex
	terms    termIndex
	// namespaces are the labels of namespaces that have any.
	namespaces Namespaces
	// nominated are the nodes that room is kept on, by the uids of the pods.
	nominated map[string]string
	// apart is how many of the pods that room is kept for have required anti-affinity.
	apart   int
	budgets []*Budget
	groups  groups
	volumes *Volumes
	// priorities are how many pods of the nodes have which priority.
	priorities map[int32]int
	// templates are the answers that hold for nodes in their present states.
	templates templates
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{byName: map[string]int{}, images: imageIndex{}, namespaces: Namespaces{}, nominated: map[string]string{}, priorities: map[int32]int{}, volumes: newVolumes()}
}

// Nodes returns all nodes that have an object. The slice must not be changed, and neither it nor a node kept beyond the decision.
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
// decision. A node that the snapshot has given out must not be used after it: its memory is used again.
func (s *Snapshot) Set(name string, n *NodeInfo) {
	i, ok := s.byName[name]
	was, now := changedPods(s.Node(name).podsOrNone(), n.podsOrNone())
	s.prioritize(was, now)
	s.volumes.use(was, now)
	s.images.move(s.Node(name).imagesOrNone(), n.imagesOrNone())
	s.apart += n.keepsApart() - s.Node(name).keepsApart()
	switch {
	case n == nil && !ok:
	case n == nil:
		last := len(s.nodes) - 1
		s.nodes[i].become(s.nodes[last], i)
		s.byName[s.nodes[i].Name] = i
		*s.nodes[last] = NodeInfo{}
		s.nodes = s.nodes[:last]
		s.versions = s.versions[:last]
		if i < last {
			s.versions[i] = s.newVersion(s.nodes[i])
		}
		delete(s.byName, name)
		s.index.removed(i)
		s.terms.set(name, i, nil, was, now)
	case ok:
		s.index.changed(i, s.nodes[i], n, was, now)
		s.nodes[i].become(n, i)
		s.versions[i] = s.newVersion(n)
		s.terms.set(name, i, s.index.topologies, was, now)
	default:
		i = len(s.nodes)
		s.nodes = append(s.nodes, s.memory.slot(i))
		s.nodes[i].become(n, i)
		s.byName[name] = i
		s.versions = append(s.versions, s.newVersion(n))
		s.index.added(n)
		s.terms.set(name, i, nil, was, now)
	}
}

// prioritize takes the pods that came to a node and those that went.
func (s *Snapshot) prioritize(went, came []*PodInfo) {
	for _, p := range came {
		s.priorities[p.Priority]++
	}
	for _, p := range went {
		if s.priorities[p.Priority]--; s.priorities[p.Priority] == 0 {
			delete(s.priorities, p.Priority)
		}
	}
}

// HasBelow says whether a pod of any node has a lower priority. There are few priorities, and many nodes.
func (s *Snapshot) HasBelow(priority int32) bool {
	for p := range s.priorities {
		if p < priority {
			return true
		}
	}
	return false
}

func (s *Snapshot) newVersion(n *NodeInfo) uint64 {
	s.version++
	if len(n.Nominated) > 0 {
		return 0
	}
	return s.version
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
