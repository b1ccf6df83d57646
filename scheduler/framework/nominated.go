package framework

// SetNominated keeps room on a node for the pod of that uid; no node takes that back. The node's own list says so, too: see
// NodeInfo.WithNominated. It must not be called during a decision.
func (s *Snapshot) SetNominated(uid, node string) {
	if node == "" {
		delete(s.nominated, uid)
		return
	}
	s.nominated[uid] = node
}

// NominatedNode returns the node that room is kept on for the pod of that uid; nil when there is none.
func (s *Snapshot) NominatedNode(uid string) *NodeInfo { return s.Node(s.nominated[uid]) }

// AnyNominated says whether room is kept for any pod.
func (s *Snapshot) AnyNominated() bool { return len(s.nominated) > 0 }
