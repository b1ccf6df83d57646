package interpodaffinity

import (
	"slices"

	"monoplane.dev/scheduler/framework"
)

// PreScore adds up, by domain, the weights of what the pod prefers and of the terms of pods that are there.
func (p *Plugin) PreScore(
	state *framework.CycleState, pod *framework.PodInfo, _ []*framework.NodeInfo,
) *framework.Status {
	if p.ignoreExisting && !pod.Affinity.Prefers() {
		return p.skip
	}
	snapshot := state.Snapshot()
	list := existing(nil, snapshot, framework.PreferredAffinity, pod, 1)
	if p.hardWeight > 0 {
		list = existing(list, snapshot, framework.RequiredAffinity, pod, p.hardWeight)
	}
	if a := pod.Affinity; a != nil {
		for i := range a.Preferred {
			t := &a.Preferred[i]
			topology := snapshot.Topology(t.Key)
			sums := snapshot.Counter(t.Pods).Sums(topology)
			if !sums.None() {
				list = weigh(list, weights{topology: topology, counts: sums, by: t.Weight})
			}
		}
	}
	if len(list) == 0 {
		return p.skip
	}
	state.Write(scoreKey{}, list)
	return nil
}

// Score is the sum of the weights of the node's domains.
func (*Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) int64 {
	list, _ := state.Read(scoreKey{}).([]weights)
	return rates(list, node)
}

// NormalizeScore gives the least weight 0 and the largest the best score; nodes that are all alike have 0.
func (*Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	least, most := slices.Min(scores), slices.Max(scores)
	for i, s := range scores {
		if scores[i] = 0; most > least {
			scores[i] = int64(framework.MaxScore * (float64(s-least) / float64(most-least)))
		}
	}
}
