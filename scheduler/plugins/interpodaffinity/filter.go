package interpodaffinity

import "monoplane.dev/scheduler/framework"

// filterKey and scoreKey are where a decision keeps what the plugin works out.
type (
	filterKey struct{}
	scoreKey  struct{}
)

// filter is what judging nodes needs.
type filter struct {
	// affinity counts the pods that all terms of the pod's affinity select, once for each term; antiAffinity those that a
	// term of its anti-affinity selects.
	affinity, antiAffinity []count
	// first says that the pod is the first of a group that wants to be together; own that it would be one of the group.
	first, own bool
	// existing are the terms of anti-affinity, of pods that are there, that select the pod.
	existing []weights
}

// count is how many pods there are in each domain.
type count struct {
	pods     *framework.PodQuery
	topology *framework.Topology
	sums     *framework.Sums
}

// PreFilter finds out how many pods there are in each domain that attract or repel the pod.
func (p *Plugin) PreFilter(
	state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	var f filter
	f.existing = existing(f.existing, snapshot, framework.RequiredAntiAffinity, pod, 1)
	if len(f.existing) == 0 && !pod.Affinity.Chooses() && !snapshot.KeepsApart() {
		return nil, p.skip
	}
	if a := pod.Affinity; a != nil {
		f.affinity = counts(snapshot, a.Affinity, a.Near)
		f.antiAffinity = counts(snapshot, a.AntiAffinity, nil)
		f.own = len(f.affinity) > 0 && a.Near.Counts(pod.Pod, snapshot.Namespaces())
		f.first = f.own && alone(f.affinity)
	}
	state.Write(filterKey{}, &f)
	if first := f.nearest(snapshot); first != nil {
		return &framework.PreFilterResult{First: first}, nil
	}
	return nil, nil
}

// nearest returns nodes such that all others are far from the pods of the affinity: the fewest that a term leaves. It
// returns nil when these are many, or none.
func (f *filter) nearest(snapshot *framework.Snapshot) (nodes []*framework.NodeInfo) {
	if f.first {
		return nil // every node with the labels will do
	}
	limit := len(snapshot.Nodes()) / 2
	for i := range f.affinity {
		c := &f.affinity[i]
		if list, ok := snapshot.NodesAround(c.topology, c.sums, limit); ok {
			nodes, limit = list, len(list)
		}
	}
	return nodes
}

// counts counts by the domains of each term the pods that all select, or those that the term selects if all is nil.
func counts(snapshot *framework.Snapshot, terms []framework.PodTerm, all *framework.PodQuery) []count {
	if len(terms) == 0 {
		return nil
	}
	list := make([]count, len(terms))
	for i := range terms {
		pods := all
		if pods == nil {
			pods = terms[i].Pods
		}
		topology := snapshot.Topology(terms[i].Key)
		list[i] = count{pods, topology, snapshot.Counter(pods).Sums(topology)}
	}
	return list
}

// alone says whether there is no pod in any domain.
func alone(list []count) bool {
	for i := range list {
		if !list[i].sums.None() {
			return false
		}
	}
	return true
}

// Filter refuses nodes that are far from the pods of the pod's affinity, near to those of its anti-affinity, or near
// to pods whose anti-affinity is against it.
func (p *Plugin) Filter(
	state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo,
) *framework.Status {
	f, ok := state.Read(filterKey{}).(*filter)
	if !ok {
		return nil
	}
	s := supposed{state.WhatIf(), state.Snapshot().Namespaces()}
	switch {
	case !f.attracted(node, s):
		return p.far
	case f.repels(node, s):
		return p.near
	case rates(f.existing, node)+s.against(pod, node) > 0:
		return p.repelled
	default:
		return nil
	}
}

// attracted says whether the pods of the affinity are near to the node, which must have the labels of all terms.
func (f *filter) attracted(node *framework.NodeInfo, s supposed) bool {
	near := true
	for i := range f.affinity {
		c := &f.affinity[i]
		d := c.topology.Find(node)
		if d == framework.NoDomain && !c.topology.HasKey(node) {
			return false
		}
		near = near && s.domain(c, d) > 0
	}
	return near || f.first && s.none() || f.own && s.alone(f.affinity, node)
}

// repels says whether a pod of the anti-affinity is near to the node.
func (f *filter) repels(node *framework.NodeInfo, s supposed) bool {
	for i := range f.antiAffinity {
		c := &f.antiAffinity[i]
		if s.domain(c, c.topology.Find(node)) > 0 {
			return true
		}
	}
	return false
}
