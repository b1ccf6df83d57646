package framework

import "slices"

// searchConfig says how many nodes that fit are enough (spec: SCHED-7).
type searchConfig struct{ percentage int }

const (
	// minFeasible nodes are always looked for, as far as there are so many.
	minFeasible = 100
	// Without a configured percentage 50 % of the nodes are looked for, one less for each 125 nodes, at least 5 %.
	adaptiveStart, adaptiveStep, adaptiveMin = 50, 125, 5
)

// enough returns how many feasible nodes a search among all nodes stops at.
func (c searchConfig) enough(all int) int {
	percentage := c.percentage
	if percentage == 0 {
		percentage = max(adaptiveStart-all/adaptiveStep, adaptiveMin)
	}
	return min(all, max(all*percentage/100, minFeasible))
}

// Schedule picks a node for the pod. It changes nothing but state and the searcher. A plugin that panics fails the
// decision.
func (p *Profile) Schedule(state *CycleState, pod *PodInfo, snapshot *Snapshot, search *Searcher) (decision Decision) {
	defer func() {
		state.trial = nil // its scratch space must not outlive the decision
		if err := caught(recover()); err != nil {
			decision = Decision{Err: err}
		}
	}()
	all := snapshot.Nodes()
	if len(all) == 0 {
		return p.refuse(state, pod, snapshot, NewDiagnosis(0))
	}
	d := NewDiagnosis(len(all))
	only, skipFilter, s := p.preFilter(state, pod, snapshot)
	if s != nil {
		if !s.IsRejected() {
			return Decision{Err: s.Err()}
		}
		d.PreFilter = s
		return p.refuse(state, pod, snapshot, d)
	}
	nodes := only.nodes(snapshot)
	if out := len(all) - len(nodes); out > 0 {
		d.refused(only.refused, out)
	}
	if only != nil {
		next := search.next
		defer func() { search.next = next }() // the others go on where they were
		search.next = 0
	}
	state.trial = &Trial{profile: p, state: state, pod: pod, skip: skipFilter}
	if n := snapshot.NominatedNode(pod.UID); n != nil && only.leftOut(n.Name) == nil &&
		p.fits(state, pod, n, skipFilter) == nil {
		return Decision{Node: n.Name, Evaluated: 1, Feasible: 1} // room was made for it there
	}
	if only == nil && len(state.first) > 0 && len(state.first) <= p.search.enough(len(all)) {
		if r, ok := p.amongFirst(state, pod, skipFilter, search); ok {
			return r
		}
	}
	find := finder{profile: p, state: state, pod: pod, nodes: nodes, skip: skipFilter,
		enough: p.search.enough(len(nodes))}
	if only == nil {
		find.recall(snapshot)
	}
	evaluated, s := p.findFeasible(&find, search, d)
	if s != nil {
		return Decision{Err: s.Err()}
	}
	feasible := search.feasible
	if len(feasible) == 0 {
		r := p.refuse(state, pod, snapshot, d)
		r.Evaluated = evaluated
		return r
	}
	node, s := p.best(state, pod, feasible, search)
	if s != nil {
		return Decision{Err: s.Err()}
	}
	return Decision{Node: node, Evaluated: evaluated, Feasible: len(feasible)}
}

// amongFirst looks at the nodes that a PreFilter plugin wants looked at first; ok is false when none of them fits.
// They are so few that a search among all nodes would find all of them that fit.
func (p *Profile) amongFirst(state *CycleState, pod *PodInfo, skip uint64, search *Searcher) (r Decision, ok bool) {
	next := search.next
	defer func() { search.next = next }() // the others go on where they were
	search.next = 0
	find := finder{profile: p, state: state, pod: pod, nodes: state.first, skip: skip, some: true,
		enough: len(state.first)}
	find.recall(state.snapshot)
	evaluated, s := p.findFeasible(&find, search, NewDiagnosis(len(state.first)))
	if s != nil {
		return Decision{Err: s.Err()}, true
	}
	if len(search.feasible) == 0 {
		return Decision{}, false
	}
	node, s := p.best(state, pod, search.feasible, search)
	if s != nil {
		return Decision{Err: s.Err()}, true
	}
	return Decision{Node: node, Evaluated: evaluated, Feasible: len(search.feasible)}, true
}

// preFilter returns the nodes that can fit and, as a set of bits, the Filter plugins to leave out.
func (p *Profile) preFilter(
	state *CycleState, pod *PodInfo, snapshot *Snapshot,
) (only *candidates, skip uint64, refused *Status) {
	state.snapshot = snapshot
	if p.foreign {
		snapshot.last()
	}
	for _, pl := range p.preFilters {
		r, s := pl.PreFilter(state, pod, snapshot)
		switch {
		case s.Code() == Skip:
			skip |= p.filterBit(pl.Name())
		case !s.IsSuccess():
			return nil, 0, s
		case r != nil && r.NodeNames != nil:
			only = only.narrow(pl.Name(), r.NodeNames)
		case r != nil && r.First != nil && (state.first == nil || len(r.First) < len(state.first)):
			state.first = r.First
		}
	}
	return only, skip, nil
}

// filterBit returns the bit of the Filter plugin with that name; 0 when there is none.
func (p *Profile) filterBit(name string) uint64 {
	for i, f := range p.filters {
		if f.Name() == name {
			return 1 << i
		}
	}
	return 0
}

// findFeasible fills search.feasible, going round the nodes from where the last search stopped.
func (p *Profile) findFeasible(find *finder, search *Searcher, d *Diagnosis) (evaluated int, failure *Status) {
	search.feasible, search.curable = search.feasible[:0], search.curable[:0]
	all := find.nodes
	if search.next >= len(all) {
		search.next = 0
	}
	i := search.next
	for evaluated < len(all) && len(search.feasible) < find.enough {
		at := i
		if i++; i == len(all) {
			i = 0
		}
		evaluated++
		switch s := find.fits(at); s.Code() {
		case Success:
			search.feasible = append(search.feasible, all[at])
		case Unschedulable:
			search.curable = append(search.curable, all[at])
			d.Refused(s)
		case Unresolvable:
			d.Refused(s)
		default:
			return evaluated, s
		}
	}
	search.next = i
	d.Curable = search.curable
	return evaluated, nil
}

// fits runs all Filter plugins on one node; nil means that it fits. Room that is kept for pods of at least the same
// priority counts as taken. The node must fit without them, too: they may land elsewhere (spec: PREEMPT-2).
func (p *Profile) fits(state *CycleState, pod *PodInfo, node *NodeInfo, skip uint64) *Status {
	if len(node.Nominated) > 0 && slices.ContainsFunc(node.Nominated, state.trial.keeps) {
		state.trial.Begin(node, func(*PodInfo) bool { return false })
		return state.trial.Fits()
	}
	return p.filter(state, pod, node, skip)
}

func (p *Profile) filter(state *CycleState, pod *PodInfo, node *NodeInfo, skip uint64) *Status {
	for i, f := range p.filters {
		if skip&(1<<i) != 0 {
			continue
		}
		if s := f.Filter(state, pod, node); !s.IsSuccess() {
			return s
		}
	}
	return nil
}

// refuse lets the PostFilter plugins have their say.
func (p *Profile) refuse(state *CycleState, pod *PodInfo, snapshot *Snapshot, d *Diagnosis) Decision {
	r := Decision{Diagnosis: d}
	for _, pl := range p.postFilters {
		n, s := pl.PostFilter(state, pod, snapshot, d)
		if s.Code() == Error {
			return Decision{Err: s.Err()}
		}
		if m := s.Message(); m != "" {
			d.PostFilter = m
		}
		if n != nil {
			r.Nomination = n
		}
		if s.IsSuccess() {
			break
		}
	}
	d.Curable = nil
	return r
}

// best scores the feasible nodes and picks the best; among equals one at random (spec: SCHED-5).
func (p *Profile) best(state *CycleState, pod *PodInfo, nodes []*NodeInfo, search *Searcher) (string, *Status) {
	if len(nodes) == 1 {
		return nodes[0].Name, nil
	}
	search.totals = resize(search.totals, len(nodes))
	search.scores = resize(search.scores, len(nodes))
	clear(search.totals)
	s := p.score(state, pod, nodes, search.scores, func(w weighted, scores []int64) {
		for i, v := range scores {
			search.totals[i] += v * w.weight
		}
	})
	if s != nil {
		return "", s
	}
	best, equals := 0, 1
	for i := 1; i < len(nodes); i++ {
		switch {
		case search.totals[i] > search.totals[best]:
			best, equals = i, 1
		case search.totals[i] == search.totals[best]:
			equals++
			if search.rng.IntN(equals) == 0 {
				best = i
			}
		}
	}
	return nodes[best].Name, nil
}

// score hands each plugin's normalised scores of the nodes to take. scores is scratch space.
func (p *Profile) score(
	state *CycleState, pod *PodInfo, nodes []*NodeInfo, scores []int64, take func(w weighted, scores []int64),
) *Status {
	var skipped map[string]bool
	for _, pl := range p.preScores {
		s := pl.PreScore(state, pod, nodes)
		switch {
		case s.Code() == Skip:
			if skipped == nil {
				skipped = map[string]bool{}
			}
			skipped[pl.Name()] = true
		case !s.IsSuccess():
			return s
		}
	}
	for _, w := range p.scores {
		if skipped[w.Name()] {
			continue
		}
		for i, n := range nodes {
			scores[i] = w.Score.Score(state, pod, n)
		}
		if norm, ok := w.Score.(NormalizeScore); ok {
			norm.NormalizeScore(state, pod, nodes, scores)
		}
		take(w, scores)
	}
	return nil
}

func resize(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n)
	}
	return s[:n]
}
