package nodeaffinity

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// Chosen is what a pod requires of nodes of one snapshot: each requirement on a label is judged once for each value of the label.
// It is valid for one decision.
type Chosen struct {
	labels []*framework.LabelTest
	// any says that there is no required affinity.
	any   bool
	terms []chosenTerm
}

type chosenTerm struct {
	*term
	labels []*framework.LabelTest
}

// In makes the requirements ready for the nodes of a snapshot.
func (r *Required) In(snapshot *framework.Snapshot) *Chosen {
	c := &Chosen{any: r.affinity == nil}
	for key, want := range r.labels {
		c.labels = append(c.labels, snapshot.LabelTest(key, func(v string, has bool) bool { return has && v == want }))
	}
	if r.affinity != nil {
		for i := range r.affinity.list {
			c.terms = append(c.terms, r.affinity.list[i].in(snapshot))
		}
	}
	return c
}

func (t *term) in(snapshot *framework.Snapshot) chosenTerm {
	c := chosenTerm{term: t}
	for i := range t.labels {
		c.labels = append(c.labels, snapshot.LabelTest(t.labels[i].key, t.labels[i].match))
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
	if c.hopeless {
		return false
	}
	for _, l := range c.labels {
		if !l.Match(n) {
			return false
		}
	}
	return c.matchName(n.Node)
}

// matchName judges the requirements on fields, of which the name is the only one.
func (t *term) matchName(node *corev1.Node) bool {
	for i := range t.fields {
		if !t.fields[i].match(node.GetMetadata().GetName(), true) {
			return false
		}
	}
	return true
}
