package podtopologyspread

import "monoplane.dev/scheduler/framework"

// filterKey and scoreKey are where a decision keeps what the plugin works out.
type (
	filterKey struct{}
	scoreKey  struct{}
)

// PreFilter counts the pods in each domain of the hard constraints.
func (p *Plugin) PreFilter(
	state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	hard := p.constraints(pod, snapshot, true)
	if len(hard) == 0 {
		return nil, p.skip
	}
	all := tallies(pod, hard, snapshot, false)
	for i := range all {
		if t := &all[i]; t.domains < t.MinDomains {
			t.least = 0
		}
	}
	state.Write(filterKey{}, all)
	return nil, nil
}

// Filter refuses a node when its domain would be more than maxSkew ahead of the emptiest one.
func (p *Plugin) Filter(
	state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo,
) *framework.Status {
	all, _ := state.Read(filterKey{}).([]tally)
	w := state.WhatIf()
	for i := range all {
		t := &all[i]
		d := t.topology.Find(node)
		if d == framework.NoDomain && !t.topology.HasKey(node) {
			return p.unlabelled
		}
		pods, least := t.domain(d), t.least
		if w != nil {
			var more int
			more, least = t.supposed(w, state.Snapshot().Namespaces(), node, d)
			pods += more
		}
		if t.Self {
			pods++
		}
		if pods-least > t.MaxSkew {
			return p.uneven
		}
	}
	return nil
}
