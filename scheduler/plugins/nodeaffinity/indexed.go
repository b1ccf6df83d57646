package nodeaffinity

import (
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/scheduler/framework"
)

// Chosen is what a pod requires of nodes of one snapshot: each requirement on a label is judged once for each value of
// the label. It is valid for one decision.
type Chosen struct {
	labels []*framework.LabelTest
	// any says that there is no required affinity.
	any   bool
	terms []chosenTerm
}

type chosenTerm struct {
	*nodeselector.Term
	labels []*framework.LabelTest
}

// In makes requirements ready for the nodes of a snapshot.
func In(r *nodeselector.Required, snapshot *framework.Snapshot) *Chosen {
	terms, chooses := r.Terms()
	c := &Chosen{any: !chooses}
	for key, want := range r.Labels() {
		c.labels = append(c.labels, snapshot.LabelTest(key, func(v string, has bool) bool { return has && v == want }))
	}
	for i := range terms {
		c.terms = append(c.terms, termIn(&terms[i], snapshot))
	}
	return c
}

func termIn(t *nodeselector.Term, snapshot *framework.Snapshot) chosenTerm {
	c := chosenTerm{Term: t}
	for i := range t.Labels {
		c.labels = append(c.labels, snapshot.LabelTest(t.Labels[i].Key, t.Labels[i].Match))
	}
	return c
}

// Matches says whether the node is one that the pod requires.
func (c *Chosen) Matches(n *framework.NodeInfo) bool {
	for _, l := range c.labels {
		if !l.Match(n) {
			return false
		}
	}
	if c.any {
		return true
	}
	for i := range c.terms {
		if c.terms[i].matches(n) {
			return true
		}
	}
	return false
}

func (c *chosenTerm) matches(n *framework.NodeInfo) bool {
	if c.Hopeless {
		return false
	}
	for _, l := range c.labels {
		if !l.Match(n) {
			return false
		}
	}
	return c.MatchName(n.Node)
}
