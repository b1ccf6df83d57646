package nodeaffinity

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/scheduler/framework"
)

// preference is a term with what it adds to the score of nodes that match.
type preference struct {
	nodeselector.Term
	weight int64
}

func readPreferences(a *corev1.NodeAffinity) []preference {
	var list []preference
	for _, t := range a.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		if p := (preference{nodeselector.ReadTerm(t.GetPreference()), int64(t.GetWeight())}); !p.Hopeless {
			list = append(list, p)
		}
	}
	return list
}

// preferredKey is where PreScore leaves the preferences, the pod's and the added ones, for Score.
type preferredKey struct{}

type chosenPreference struct {
	chosenTerm
	weight int64
}

// PreScore skips pods for which no node is preferred.
func (p *Plugin) PreScore(
	state *framework.CycleState, pod *framework.PodInfo, _ []*framework.NodeInfo,
) *framework.Status {
	own := readPreferences(pod.Pod.GetSpec().GetAffinity().GetNodeAffinity())
	if len(own) == 0 && len(p.preferred) == 0 {
		return p.skip
	}
	all := make([]chosenPreference, 0, len(own)+len(p.preferred))
	for _, list := range [][]preference{own, p.preferred} {
		for i := range list {
			all = append(all, chosenPreference{termIn(&list[i].Term, state.Snapshot()), list[i].weight})
		}
	}
	state.Write(preferredKey{}, all)
	return nil
}

// Score is the sum of the weights of the preferences that the node matches.
func (p *Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) int64 {
	sum := int64(0)
	all, _ := state.Read(preferredKey{}).([]chosenPreference)
	for i := range all {
		if all[i].matches(node) {
			sum += all[i].weight
		}
	}
	return sum
}

// NormalizeScore gives the largest sum the best score, and the others their share of it.
func (*Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	most := int64(0)
	for _, s := range scores {
		most = max(most, s)
	}
	if most == 0 {
		return
	}
	for i, s := range scores {
		scores[i] = s * framework.MaxScore / most
	}
}
