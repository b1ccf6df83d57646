package framework

import (
	"slices"

	"monoplane.dev/rules/hostports"
)

// WhatIf is how the node that a Filter is asked about differs from what the snapshot has: pods came to it or are gone
// from it. All other nodes are as they are. What a plugin reads from the node has the difference in it; what it
// counted over several nodes it corrects by this.
type WhatIf struct{ came, gone []*PodInfo }

// WhatIf returns the difference; nil when there is none. It is valid until the Filter that asks returns.
func (c *CycleState) WhatIf() *WhatIf { return c.whatIf }

// More returns how many more pods of the node a query selects; fewer if negative.
func (w *WhatIf) More(q *PodQuery, n Namespaces) int {
	if w == nil {
		return 0
	}
	more := 0
	for _, p := range w.came {
		if q.Counts(p.Pod, n) {
			more++
		}
	}
	for _, p := range w.gone {
		if q.Counts(p.Pod, n) {
			more--
		}
	}
	return more
}

// Each hands every pod to visit: by is 1 for one that came and -1 for one that is gone.
func (w *WhatIf) Each(visit func(p *PodInfo, by int64)) {
	if w == nil {
		return
	}
	for _, p := range w.came {
		visit(p, 1)
	}
	for _, p := range w.gone {
		visit(p, -1)
	}
}

// Trial judges nodes as they would be without some of their pods. It belongs to a decision, and tries one node after
// the other:
//
//	t := state.Trial()
//	t.Begin(node, func(p *PodInfo) bool { return p.Priority < pod.Priority })
//	if t.Fits() == nil && t.Return(p) { ... } // it fits without them, and also with p
type Trial struct {
	profile *Profile
	state   *CycleState
	pod     *PodInfo
	// skip are the filters left out in the decision; known are those that have accepted the node and are blind to pods.
	skip, known uint64

	node   NodeInfo
	whatIf WhatIf
	// answers are those for the pods of the same template, versions those of the nodes by place; nil when what is found
	// out about a node does not hold for the next pod.
	answers  *answers
	versions []uint64
	// pods, ports, gone and came are scratch space.
	pods  []*PodInfo
	ports []hostports.Port
	gone  []*PodInfo
	came  []*PodInfo
}

// Trial returns the decision's trial; nil before its Filter plugins run.
func (c *CycleState) Trial() *Trial { return c.trial }

// Begin takes up a node, without the pods that go.
func (t *Trial) Begin(n *NodeInfo, goes func(*PodInfo) bool) {
	t.node, t.known = *n, 0
	t.pods = slices.Grow(t.pods[:0], len(n.pods)+len(n.Nominated))
	t.gone, t.ports, t.came = t.gone[:0], t.ports[:0], t.came[:0]
	for _, p := range n.pods {
		if goes(p) {
			t.gone = append(t.gone, p)
		} else {
			t.pods = append(t.pods, p)
		}
	}
	if len(t.gone) > 0 { // sums are made anew: saturated ones could not be subtracted from
		t.node.Requested = Resources{}
		for _, p := range t.pods {
			t.node.Requested = t.node.Requested.Add(p.Requests)
			t.ports = append(t.ports, p.Ports...)
		}
		t.node.Ports = t.ports
	}
	t.node.pods = t.pods
	t.whatIf = WhatIf{gone: t.gone}
	for _, p := range n.Nominated {
		if t.keeps(p) {
			t.came = append(t.came, p)
		}
	}
}

// keeps says whether the room that is kept for p is kept against the pod of the decision.
func (t *Trial) keeps(p *PodInfo) bool { return p.Priority >= t.pod.Priority && p.UID != t.pod.UID }

// Gone returns the pods that are gone, in no order. The slice must not be changed.
func (t *Trial) Gone() []*PodInfo { return t.whatIf.gone }

// Fits judges the node; nil means that the pod fits.
func (t *Trial) Fits() *Status {
	if len(t.came) > 0 {
		was := t.add(t.came...)
		t.whatIf.came = t.came
		s := t.run()
		t.whatIf.came = nil
		t.take(was)
		if s != nil {
			return s
		}
	}
	return t.run()
}

func (t *Trial) run() *Status {
	if len(t.whatIf.came)+len(t.whatIf.gone) > 0 {
		t.state.whatIf = &t.whatIf
		defer func() { t.state.whatIf = nil }()
	}
	node := &t.node
	if t.profile.foreign {
		node = t.node.lasting()
	}
	s := t.profile.filter(t.state, t.pod, node, t.skip|t.known)
	if s == nil {
		t.known = t.profile.podBlind
	}
	return s
}

// Return puts a pod that is gone back if the pod of the decision still fits beside it.
func (t *Trial) Return(p *PodInfo) bool {
	i := 0
	for t.whatIf.gone[i] != p {
		i++
	}
	last := len(t.whatIf.gone) - 1
	t.whatIf.gone[i] = t.whatIf.gone[last]
	t.whatIf.gone = t.whatIf.gone[:last]
	was := t.add(p)
	if t.Fits() == nil {
		return true
	}
	t.take(was)
	t.whatIf.gone = append(t.whatIf.gone, p)
	return false
}

// mark is what add changes.
type mark struct {
	requested   Resources
	pods, ports int
}

func (t *Trial) add(pods ...*PodInfo) mark {
	n := &t.node
	was := mark{n.Requested, len(n.pods), len(n.Ports)}
	for _, p := range pods {
		n.Requested = n.Requested.Add(p.Requests)
		n.pods = append(n.pods, p)
		if len(p.Ports) > 0 {
			n.Ports = append(n.Ports[:len(n.Ports):len(n.Ports)], p.Ports...)
		}
	}
	return was
}

func (t *Trial) take(was mark) {
	n := &t.node
	n.Requested, n.pods, n.Ports = was.requested, n.pods[:was.pods], n.Ports[:was.ports]
}

// Recall returns what was noted about a node for an earlier pod of the same template, and still holds; nil if there is
// nothing.
func (t *Trial) Recall(n *NodeInfo) any {
	i, ok := n.Place()
	if !ok || t.answers == nil || i >= len(t.answers.notes) || t.versions[i] == 0 {
		return nil
	}
	if k := &t.answers.notes[i]; k.version == t.versions[i] {
		return k.about
	}
	return nil
}

// Note keeps what was found out about a node of the snapshot, with nothing but the node and the pod's spec in it,
// until the node changes. It does nothing when other things than these matter to the filters.
func (t *Trial) Note(n *NodeInfo, about any) {
	i, ok := n.Place()
	if !ok || t.answers == nil || t.versions[i] == 0 {
		return
	}
	if len(t.answers.notes) < len(t.versions) {
		t.answers.notes = append(t.answers.notes, make([]note, len(t.versions)-len(t.answers.notes))...)
	}
	t.answers.notes[i] = note{t.versions[i], about}
}
