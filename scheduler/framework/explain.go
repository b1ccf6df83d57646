package framework

// Explanation says of every node what a profile thinks of it for one pod.
type Explanation struct {
	// PreFilter is the refusal of the pod for all nodes, nil when there is none.
	PreFilter *Status
	// Nodes are in the order of the snapshot.
	Nodes []NodeExplanation
	// Message says why the pod fits nowhere, as Schedule would; empty when a node fits.
	Message string
	// Nomination is what a PostFilter plugin would make of a pod that fits nowhere; nil when none has a say.
	Nomination *Nomination
	// Enough is how many nodes that fit Schedule looks for.
	Enough int
}

// NodeExplanation is what a profile thinks of one node.
type NodeExplanation struct {
	Name string
	// Refused says which plugin refuses the node and why; nil when the pod fits.
	Refused *Status
	// Also are the refusals of the other Filter plugins, in their order, which Schedule does not ask any more.
	Also []*Status
	// Scores are those of the Score plugins, in their order, for a node that fits. A plugin that has nothing to say about
	// the pod has none. Total is their weighted sum.
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
	all := snapshot.Nodes()
	if len(all) == 0 {
		return e, p.explainRefusal(&e, &state, pod, snapshot, NewDiagnosis(0))
	}
	d := NewDiagnosis(len(all))
	e.Enough = p.search.enough(len(all))
	only, skip, s := p.preFilter(&state, pod, snapshot)
	if s != nil && !s.IsRejected() {
		return e, s.Err()
	}
	e.PreFilter, d.PreFilter = s, s
	e.Nodes = make([]NodeExplanation, 0, len(all))
	if s != nil {
		for _, n := range all {
			e.Nodes = append(e.Nodes, NodeExplanation{Name: n.Name, Refused: s})
		}
		return e, p.explainRefusal(&e, &state, pod, snapshot, d)
	}
	state.trial = &Trial{profile: p, state: &state, pod: pod, skip: skip}
	var fit []*NodeInfo
	var at []int
	for i, n := range all {
		refused, looked := only.leftOut(n.Name), false
		if refused == nil {
			refused, looked = p.fits(&state, pod, n, skip), true
		}
		e.Nodes = append(e.Nodes, NodeExplanation{Name: n.Name, Refused: refused})
		switch {
		case refused == nil:
			fit, at = append(fit, n), append(at, i)
		case !refused.IsRejected():
			return e, refused.Err()
		default:
			e.Nodes[i].Also = p.others(&state, pod, n, skip, refused)
			d.Refused(refused)
			if looked && refused.Code() == Unschedulable {
				d.Curable = append(d.Curable, n)
			}
		}
	}
	if len(fit) == 0 {
		return e, p.explainRefusal(&e, &state, pod, snapshot, d)
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

// others returns the refusals of a node by the plugins that have not refused it first. One that fails has no say: the
// decision would not have come to it.
func (p *Profile) others(state *CycleState, pod *PodInfo, n *NodeInfo, skip uint64, first *Status) (also []*Status) {
	trial := state.trial
	defer func() { trial.skip = skip }()
	for i, f := range p.filters {
		if skip&(1<<i) != 0 || f.Name() == first.Plugin() {
			continue
		}
		trial.skip = skip | p.allFilters&^(1<<i)
		if s := p.fits(state, pod, n, trial.skip); s.IsRejected() {
			also = append(also, s)
		}
	}
	return also
}

// explainRefusal asks the PostFilter plugins what they would do for a pod that fits nowhere.
func (p *Profile) explainRefusal(
	e *Explanation, state *CycleState, pod *PodInfo, snapshot *Snapshot, d *Diagnosis,
) error {
	r := p.refuse(state, pod, snapshot, d)
	if r.Err != nil {
		return r.Err
	}
	e.Message, e.Nomination = d.Message(), r.Nomination
	return nil
}
