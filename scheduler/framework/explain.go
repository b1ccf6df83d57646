package framework

// Explanation says of every node what a profile thinks of it for one pod.
type Explanation struct {
	// PreFilter is the refusal of the pod for all nodes, nil when there is none.
	PreFilter *Status
	// Nodes are in the order of the snapshot.
	Nodes []NodeExplanation
}

// NodeExplanation is what a profile thinks of one node.
type NodeExplanation struct {
	Name string
	// Refused says which plugin refuses the node and why; nil when the pod fits.
	Refused *Status
	// Scores are those of the Score plugins, in their order, for a node that fits. A plugin that has nothing to say about the
	// pod has none. Total is their weighted sum.
	Scores []PluginScore
	Total  int64
}

// PluginScore is a plugin's opinion of a node: 0..MaxScore, which counts Weight times.
type PluginScore struct {
	Plugin        string
	Score, Weight int64
}

// Explain judges all nodes for the pod, as Schedule judges some of them. It changes nothing. The error is a plugin's
// failure, which says nothing about the pod.
func (p *Profile) Explain(pod *PodInfo, snapshot *Snapshot) (e Explanation, err error) {
	defer func() {
		if panicked := caught(recover()); panicked != nil {
			e, err = Explanation{}, panicked
		}
	}()
	var state CycleState
	only, skip, s := p.preFilter(&state, pod, snapshot)
	if s != nil && !s.IsRejected() {
		return e, s.Err()
	}
	e.PreFilter = s
	var fit []*NodeInfo
	var at []int
	for i, n := range snapshot.Nodes() {
		refused := s
		if refused == nil {
			refused = only.leftOut(n.Name)
		}
		if refused == nil {
			refused = p.filter(&state, pod, n, skip)
		}
		if refused != nil && !refused.IsRejected() {
			return e, refused.Err()
		}
		e.Nodes = append(e.Nodes, NodeExplanation{Name: n.Name, Refused: refused})
		if refused == nil {
			fit, at = append(fit, n), append(at, i)
		}
	}
	if len(fit) == 0 {
		return e, nil
	}
	s = p.score(&state, pod, fit, make([]int64, len(fit)), func(w weighted, scores []int64) {
		for i, v := range scores {
			n := &e.Nodes[at[i]]
			n.Scores = append(n.Scores, PluginScore{w.Name(), v, w.weight})
			n.Total += v * w.weight
		}
	})
	return e, s.Err()
}
