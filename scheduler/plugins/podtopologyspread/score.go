package podtopologyspread

import (
	"math"

	"monoplane.dev/scheduler/framework"
)

// scores is what rating nodes by soft constraints needs.
type scores struct {
	tallies []tally
	// weights make up for topologies with few domains, in which the counts differ more.
	weights []float64
}

// PreScore counts the pods in each domain of the soft constraints.
func (p *Plugin) PreScore(state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo) *framework.Status {
	soft := constraints(pod, false)
	if len(soft) == 0 {
		return p.skip
	}
	s := &scores{tallies: tallies(pod, soft, state.Snapshot()), weights: make([]float64, len(soft))}
	for i := range s.tallies {
		s.weights[i] = math.Log(float64(s.size(&s.tallies[i], nodes) + 2))
	}
	state.Write(scoreKey{}, s)
	return nil
}

// size is in how many domains of a constraint the nodes are that fit and have all labels.
func (s *scores) size(t *tally, nodes []*framework.NodeInfo) int {
	seen := make([]bool, t.topology.Domains())
	size := 0
	for _, n := range nodes {
		if !s.rates(n) {
			continue
		}
		if t.Key == hostname {
			size++
		} else if d := t.topology.Find(n); !seen[d] {
			seen[d] = true
			size++
		}
	}
	return size
}

// rates says whether the node has the labels of all soft constraints.
func (s *scores) rates(n *framework.NodeInfo) bool {
	for i := range s.tallies {
		if !s.tallies[i].topology.HasKey(n) {
			return false
		}
	}
	return true
}

// Score is a cost, the more the fuller the node's domains are; NormalizeScore turns the order round.
func (*Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) int64 {
	s := state.Read(scoreKey{}).(*scores)
	if !s.rates(node) {
		return 0
	}
	cost := 0.0
	for i := range s.tallies {
		t := &s.tallies[i]
		cost += float64(s.pods(t, node))*s.weights[i] + float64(t.MaxSkew-1)
	}
	return int64(math.Round(cost))
}

// pods is how many pods there are in the node's domain. Nodes are told apart by themselves, whatever their label says.
func (s *scores) pods(t *tally, n *framework.NodeInfo) int {
	if t.Key == hostname {
		if i, ok := n.Place(); ok {
			return t.counter.Node(i)
		}
		return 0
	}
	return t.domain(t.topology.Find(n))
}

// NormalizeScore gives the emptiest node the best score, and a node that lacks a label none.
func (*Plugin) NormalizeScore(state *framework.CycleState, _ *framework.PodInfo, nodes []*framework.NodeInfo, costs []int64) {
	s := state.Read(scoreKey{}).(*scores)
	least, most := int64(math.MaxInt64), int64(0)
	for i, n := range nodes {
		if s.rates(n) {
			least, most = min(least, costs[i]), max(most, costs[i])
		}
	}
	for i, n := range nodes {
		switch {
		case !s.rates(n):
			costs[i] = 0
		case most == 0:
			costs[i] = framework.MaxScore
		default:
			costs[i] = framework.MaxScore * (most + least - costs[i]) / most
		}
	}
}
