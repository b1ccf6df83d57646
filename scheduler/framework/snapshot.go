package framework

// Snapshot is the cluster as one decision sees it.
type Snapshot struct {
	nodes  []*NodeInfo
	memory blocks
	// lasting says that the nodes stay true to what they were, since plugins that might keep them have seen some.
	lasting bool
	// versions tell the states of nodes apart, by their places; 0 is for nodes on which room is kept for a pod, about
	// which more must be asked than what they are like.
	versions []uint64
	version  uint64
	byName   map[string]int
	// indexes are told what becomes of the nodes, in this order: those below, and those of plugins, which byPlugin
	// finds. asked is how often one of a plugin was asked for.
	indexes  []NodeIndex
	byPlugin pluginIndexes
	asked    uint64
	index    index
	images   imageIndex
	terms    termIndex
	// namespaces are the labels of namespaces that have any.
	namespaces Namespaces
	// nominated are the nodes that room is kept on, by the uids of the pods.
	nominated  map[string]string
	apart      apartIndex
	budgets    []*Budget
	groups     groups
	volumes    *Volumes
	priorities priorityIndex
	// templates are the answers that hold for nodes in their present states.
	templates templates
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	s := &Snapshot{
		byName: map[string]int{}, images: imageIndex{}, namespaces: Namespaces{}, nominated: map[string]string{},
		priorities: priorityIndex{}, volumes: newVolumes(), byPlugin: pluginIndexes{},
	}
	s.terms.index = &s.index
	// The topologies come before the terms, which have sums over them.
	s.indexes = []NodeIndex{&s.index, &s.terms, s.images, s.volumes.users, s.priorities, &s.apart}
	return s
}

// Nodes returns all nodes that have an object. The slice must be neither changed nor kept beyond the decision.
func (s *Snapshot) Nodes() []*NodeInfo { return s.nodes }

// Node returns a node by name, nil when there is none.
func (s *Snapshot) Node(name string) *NodeInfo {
	i, ok := s.byName[name]
	if !ok {
		return nil
	}
	return s.nodes[i]
}

// Set brings one node up to date; nil removes it. It keeps a copy, which knows its place. It must not be called during
// a decision.
func (s *Snapshot) Set(name string, n *NodeInfo) {
	i, ok := s.byName[name]
	switch {
	case n == nil && !ok:
	case n == nil:
		s.remove(i)
	case ok:
		s.change(i, n)
	default:
		s.add(n)
	}
}

func (s *Snapshot) add(n *NodeInfo) {
	i := len(s.nodes)
	own := s.memoryOf(i)
	own.become(n, i)
	s.nodes = append(s.nodes, own)
	s.byName[n.Name] = i
	s.versions = append(s.versions, s.newVersion(n))
	for _, x := range s.indexes {
		x.Added(own)
	}
}

func (s *Snapshot) change(i int, n *NodeInfo) {
	was, now := s.nodes[i], n
	if s.lasting {
		now = s.memoryOf(i)
		now.become(n, i)
	}
	went, came := changedPods(was.pods, n.pods)
	for _, x := range s.indexes {
		x.Changed(was, now, went, came)
	}
	if s.lasting {
		s.nodes[i] = now
		s.index.replace(now)
		s.layTogether()
	} else {
		was.become(n, i)
	}
	s.versions[i] = s.newVersion(n)
}

// remove puts the last node into the place of the i-th.
func (s *Snapshot) remove(i int) {
	n, last := s.nodes[i], len(s.nodes)-1
	for _, x := range s.indexes {
		x.Removed(n)
	}
	delete(s.byName, n.Name)
	if i < last {
		moved := n
		if s.lasting {
			moved = s.memoryOf(i)
		}
		moved.become(s.nodes[last], i)
		s.nodes[i] = moved
		s.byName[moved.Name] = i
		s.versions[i] = s.newVersion(moved)
	}
	if !s.lasting {
		*s.nodes[last] = NodeInfo{}
	}
	s.nodes[last] = nil
	s.nodes, s.versions = s.nodes[:last], s.versions[:last]
}

// last has the nodes stay true from now on, those that the snapshot has included.
func (s *Snapshot) last() {
	if !s.lasting {
		s.lasting, s.memory.places = true, nil
	}
}

// memoryOf returns the memory for a new state of the i-th node.
func (s *Snapshot) memoryOf(i int) *NodeInfo {
	if s.lasting {
		return s.memory.fresh()
	}
	return s.memory.slot(i)
}

// layTogether copies nodes that last to where they lie one after the other, when too many do not. What was copied
// stays for those who keep it.
func (s *Snapshot) layTogether() {
	if s.memory.strewn <= max(blockSize, len(s.nodes)/maxStrewn) {
		return
	}
	for i, n := range s.nodes {
		s.nodes[i] = s.memory.fresh()
		*s.nodes[i] = *n
	}
	s.memory.strewn = 0
	s.index.forgetMembers()
}

// priorityIndex is how many pods of the nodes have which priority.
type priorityIndex map[int32]int

// Added counts the pods of a node.
func (x priorityIndex) Added(n *NodeInfo) { x.move(nil, n.pods) }

// Changed counts the pods that came and went.
func (x priorityIndex) Changed(_, _ *NodeInfo, went, came []*PodInfo) { x.move(went, came) }

// Removed takes the pods of a node out.
func (x priorityIndex) Removed(n *NodeInfo) { x.move(n.pods, nil) }

func (x priorityIndex) move(went, came []*PodInfo) {
	for _, p := range came {
		x[p.Priority]++
	}
	for _, p := range went {
		if x[p.Priority]--; x[p.Priority] == 0 {
			delete(x, p.Priority)
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

// changedPods returns the pods of a node that went or are in an older state, and those that came or are in a newer
// one. Most changes are one pod that comes or goes, or a newer state of one, so that the pods that stayed are told by
// their place.
func changedPods(was, now []*PodInfo) (went, came []*PodInfo) {
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	return was, now
}
