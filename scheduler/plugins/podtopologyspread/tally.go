package podtopologyspread

import (
	"math"

	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/rules/taints"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/nodeaffinity"
)

// tally is how many pods there are in each domain of a constraint.
type tally struct {
	*framework.SpreadConstraint
	topology *framework.Topology
	counter  *framework.Counter
	// all are the sums over all nodes; nil when some do not count, and then sums are those over the others.
	all  *framework.Sums
	sums []int
	// domains is how many domains have nodes that count; least is the smallest sum of one.
	domains, least int
	// counts says whether a node counts; nil when all do.
	counts func(*framework.NodeInfo) bool
}

// supposed returns how many more pods there would be in a node's domain, and the smallest sum of a domain then.
func (t *tally) supposed(
	w *framework.WhatIf, n framework.Namespaces, node *framework.NodeInfo, d int,
) (more, least int) {
	more = w.More(t.Pods, n)
	if more == 0 || d == framework.NoDomain || t.counts != nil && !t.counts(node) {
		return 0, t.least
	}
	if t.domains < t.MinDomains {
		return more, t.least
	}
	return more, min(t.domain(d)+more, t.leastBut(d))
}

// leastBut returns the smallest sum of a domain other than d.
func (t *tally) leastBut(d int) int {
	least := math.MaxInt
	if t.all != nil {
		if l, ok := t.all.LeastBut(d); ok {
			least = l
		}
		return least
	}
	for i, sum := range t.sums {
		if i != d && sum != unseen {
			least = min(least, sum)
		}
	}
	return least
}

// unseen is the sum of a domain that has no node that counts.
const unseen = -1

// domain returns how many pods there are in a domain; none in one that has no node that counts.
func (t *tally) domain(d int) int {
	switch {
	case d == framework.NoDomain:
		return 0
	case t.all != nil:
		return t.all.Domain(d)
	default:
		return max(t.sums[d], 0)
	}
}

// tallies counts the pods for the constraints of one kind. A node counts when it has the labels of all of them, or
// only that of the constraint if they are lenient, and when the pod's node affinity and tolerations allow it, as far
// as a constraint honors these.
func tallies(
	pod *framework.PodInfo, list []*framework.SpreadConstraint, snapshot *framework.Snapshot, lenient bool,
) []tally {
	all := make([]tally, len(list))
	for i, c := range list {
		t := snapshot.Topology(c.Key)
		all[i] = tally{SpreadConstraint: c, topology: t, counter: snapshot.Counter(c.Pods)}
	}
	required := nodeselector.OfPod(pod.Pod.GetSpec())
	chosen := nodeaffinity.In(required, snapshot)
	for i := range all {
		t := &all[i]
		if t.HonorTaints || t.HonorAffinity && required.Chooses() || !lenient && missing(all, t.topology) {
			needed := all
			if lenient {
				needed = all[i : i+1]
			}
			t.counts = func(n *framework.NodeInfo) bool { return labelled(needed, n) && t.includes(pod, chosen, n) }
			t.add(snapshot.Nodes())
			continue
		}
		t.all = t.counter.Sums(t.topology)
		t.domains, t.least = t.topology.Domains(), t.all.Least()
	}
	return all
}

// missing says whether some node may lack the label of another constraint.
func missing(all []tally, t *framework.Topology) bool {
	for i := range all {
		if o := all[i].topology; o != t && o.Without() > 0 {
			return true
		}
	}
	return false
}

// add adds up the nodes that count.
func (t *tally) add(nodes []*framework.NodeInfo) {
	t.sums = make([]int, t.topology.Domains())
	for d := range t.sums {
		t.sums[d] = unseen
	}
	for i, n := range nodes {
		if !t.counts(n) {
			continue
		}
		t.sums[t.topology.Of(i)] = max(t.sums[t.topology.Of(i)], 0) + t.counter.Node(i)
	}
	for _, sum := range t.sums {
		if sum == unseen {
			continue
		}
		if t.domains == 0 || sum < t.least {
			t.least = sum
		}
		t.domains++
	}
}

// labelled says whether a node has the labels of all these constraints.
func labelled(all []tally, n *framework.NodeInfo) bool {
	for j := range all {
		if all[j].topology.Find(n) == framework.NoDomain {
			return false
		}
	}
	return true
}

func (t *tally) includes(pod *framework.PodInfo, chosen *nodeaffinity.Chosen, n *framework.NodeInfo) bool {
	if t.HonorAffinity && !chosen.Matches(n) {
		return false
	}
	return !t.HonorTaints || taints.Untolerated(n.Taints, pod.Pod.GetSpec().GetTolerations()) == nil
}
