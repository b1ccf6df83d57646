package framework

// SetNominated keeps room on a node for the pod of that uid; no node takes that back. The node's own list says so,
// too: see NodeInfo.WithNominated. It must not be called during a decision.
func (s *Snapshot) SetNominated(uid, node string) {
	if node == "" {
		delete(s.nominated, uid)
		return
	}
	s.nominated[uid] = node
}

// NominatedNode returns the node that room is kept on for the pod of that uid; nil when there is none.
func (s *Snapshot) NominatedNode(uid string) *NodeInfo { return s.Node(s.nominated[uid]) }

// KeepsApart says whether room is kept on any node for a pod with required anti-affinity, which has a say about its
// neighbours although no node counts it yet.
func (s *Snapshot) KeepsApart() bool { return s.apart > 0 }

// apartIndex is how many of the pods that room is kept for have required anti-affinity.
type apartIndex int

// Added counts those of a node.
func (x *apartIndex) Added(n *NodeInfo) { *x += apartOn(n) }

// Changed counts those that came and went.
func (x *apartIndex) Changed(was, now *NodeInfo, _, _ []*PodInfo) { *x += apartOn(now) - apartOn(was) }

// Removed takes those of a node out.
func (x *apartIndex) Removed(n *NodeInfo) { *x -= apartOn(n) }

func apartOn(n *NodeInfo) apartIndex {
	apart := apartIndex(0)
	for _, p := range n.Nominated {
		if p.Affinity != nil && len(p.Affinity.AntiAffinity) > 0 {
			apart++
		}
	}
	return apart
}
