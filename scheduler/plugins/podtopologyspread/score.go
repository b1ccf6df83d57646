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
	// lenient says that nodes which lack some of the labels are rated by the others.
	lenient bool
}

// PreScore counts the pods in each domain of the soft constraints.
func (p *Plugin) PreScore(
	state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo,
) *framework.Status {
	soft := p.constraints(pod, state.Snapshot(), false)
	if len(soft) == 0 {
		return p.skip
	}
	lenient := len(pod.Spread) == 0 && p.defaults.lenient
	s := &scores{tallies: tallies(pod, soft, state.Snapshot(), lenient), weights: make([]float64, len(soft)),
		lenient: lenient}
	for i := range s.tallies {
		s.weights[i] = math.Log(float64(s.size(&s.tallies[i], nodes) + 2))
	}
	state.Write(scoreKey{}, s)
	return nil
}

// size is in how many domains of a constraint the nodes are that fit and are rated. Those without its label are one
// more, as Kubernetes counts them.
func (s *scores) size(t *tally, nodes []*framework.NodeInfo) int {
	seen := make([]bool, t.topology.Domains()+1) // the first is for nodes without the label
	size := 0
	for _, n := range nodes {
		if !s.rates(n) {
			continue
		}
		if t.Key == hostname {
			size++
		} else if d := t.topology.Find(n) + 1; !seen[d] {
			seen[d] = true
			size++
		}
	}
	return size
}

// rates says whether the node has a score: it needs the labels of all soft constraints, unless they are lenient.
func (s *scores) rates(n *framework.NodeInfo) bool {
	if s.lenient {
		return true
	}
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
		if s.lenient && !t.topology.HasKey(node) {
			continue
		}
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
func (*Plugin) NormalizeScore(
	state *framework.CycleState, _ *framework.PodInfo, nodes []*framework.NodeInfo, costs []int64,
) {
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
