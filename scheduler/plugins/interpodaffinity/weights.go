package interpodaffinity

import "monoplane.dev/scheduler/framework"

// fewDomains is up to how many domains it is cheaper to add up the weights of terms by domain than for each node.
const fewDomains = 64

// weights are those of a term in the domains of its topology, or of all terms in those of a topology that has few.
type weights struct {
	topology *framework.Topology
	// A domain's weight is its sum, or its count if there are counts, times by.
	sums   []int64
	counts *framework.Sums
	by     int64
}

func (w *weights) domain(d int) int64 {
	if w.counts != nil {
		return w.by * int64(w.counts.Domain(d))
	}
	return w.by * w.sums[d]
}

// weigh adds a term's weights to the list.
func weigh(list []weights, w weights) []weights {
	if w.topology.Domains() > fewDomains {
		return append(list, w)
	}
	at := 0
	for at < len(list) && list[at].topology != w.topology {
		at++
	}
	if at == len(list) {
		list = append(list, weights{topology: w.topology, sums: make([]int64, w.topology.Domains()), by: 1})
	}
	for d := range list[at].sums {
		list[at].sums[d] += w.domain(d)
	}
	return list
}

// existing adds to the list the terms of one kind, of pods that are there, that select the pod.
func existing(
	list []weights, snapshot *framework.Snapshot, kind framework.TermKind, pod *framework.PodInfo, by int64,
) []weights {
	snapshot.Terms(kind, pod.Pod, func(t *framework.Term) {
		topology, sums := snapshot.TermSums(t)
		list = weigh(list, weights{topology: topology, sums: sums, by: by})
	})
	return list
}

// rates adds up the weights of the node's domains.
func rates(list []weights, node *framework.NodeInfo) int64 {
	total := int64(0)
	for i := range list {
		if d := list[i].topology.Find(node); d != framework.NoDomain {
			total += list[i].domain(d)
		}
	}
	return total
}
