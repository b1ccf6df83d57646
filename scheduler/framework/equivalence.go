package framework

import (
	"crypto/sha256"

	corev1 "monoplane.dev/api/core/v1"
)

// NodeLocal is for Filter plugins whose answer depends on nothing but the pod's spec and the node, its pods included.
// Pods of one template are judged alike by them, so that an answer is kept and given again until the node changes.
type NodeLocal interface {
	Filter
	// NodeLocal says whether that is so, as the plugin is configured.
	NodeLocal() bool
}

// maxTemplates bounds the templates whose answers are kept; each takes 16 bytes for a node.
const maxTemplates = 16

// answers are those of the node-local filters for the pods of one template, by the places of nodes.
type answers struct {
	profile *Profile
	// spec is that of the pod that asked last: pods of one template mostly share theirs. sum identifies all that are
	// equal.
	spec *corev1.PodSpec
	sum  [sha256.Size]byte
	// used is when they were asked for last.
	used  uint64
	nodes []kept
	// notes are what was noted about nodes; empty as long as there are none.
	notes []note
}

// note is what a plugin has found out about a node of this version.
type note struct {
	version uint64
	about   any
}

// kept is the answer for a node, and the version of the node that it holds for.
type kept struct {
	version uint64
	status  *Status
}

// templates finds the answers for a pod. A template gets some when its second pod comes; before, only its sum is kept.
type templates struct {
	list  []*answers
	asked uint64
}

// of returns the answers for the pods of that template; nil when it is the first.
func (t *templates) of(p *Profile, spec *corev1.PodSpec, nodes int) *answers {
	t.asked++
	a := t.find(p, spec)
	if a == nil {
		return nil
	}
	a.spec, a.used = spec, t.asked
	if len(a.nodes) < nodes {
		a.nodes = append(a.nodes, make([]kept, nodes-len(a.nodes))...)
	}
	return a
}

// find returns nil for a template that is new, and notes it.
func (t *templates) find(p *Profile, spec *corev1.PodSpec) *answers {
	for _, a := range t.list {
		if a.spec == spec && a.profile == p {
			return a
		}
	}
	sum := sha256.Sum256(spec.AppendJSON(nil))
	oldest := 0
	for i, a := range t.list {
		if a.sum == sum && a.profile == p {
			return a
		}
		if a.used < t.list[oldest].used {
			oldest = i
		}
	}
	a := &answers{profile: p, spec: spec, sum: sum, used: t.asked}
	if len(t.list) < maxTemplates {
		t.list = append(t.list, a)
	} else {
		a.nodes, a.notes = t.list[oldest].nodes, t.list[oldest].notes
		clear(a.nodes)
		clear(a.notes)
		t.list[oldest] = a
	}
	return nil
}

// startLocal returns the filters that a decision starts with and that are node-local, as bits; those left out count as
// such.
func (p *Profile) startLocal(skip uint64) (local uint64) {
	for i, f := range p.filters {
		l, ok := f.(NodeLocal)
		if skip&(1<<i) == 0 && (!ok || !l.NodeLocal()) {
			return local
		}
		local |= 1 << i
	}
	return local
}
