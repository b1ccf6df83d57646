package interpodaffinity

import "monoplane.dev/scheduler/framework"

// supposed corrects what was counted in PreFilter by what the decision supposes about the node that is judged.
type supposed struct {
	whatIf     *framework.WhatIf
	namespaces framework.Namespaces
}

// none says whether the node is as it was counted.
func (s supposed) none() bool { return s.whatIf == nil }

// domain returns how many pods there would be in a domain, the node's.
func (s supposed) domain(c *count, d int) int {
	if d == framework.NoDomain {
		return 0
	}
	return c.sums.Domain(d) + s.whatIf.More(c.pods, s.namespaces)
}

// alone says whether there would be no pod in any domain.
func (s supposed) alone(list []count, node *framework.NodeInfo) bool {
	if s.none() {
		return false // that is known
	}
	for i := range list {
		c := &list[i]
		d := c.topology.Find(node)
		if d == framework.NoDomain && !c.sums.None() || d != framework.NoDomain &&
			(!c.sums.NoneBut(d) || s.domain(c, d) > 0) {
			return false
		}
	}
	return true
}

// against returns how many more terms of required anti-affinity, of pods of the node, would be against the pod. The
// pods of a node are in its own domain, if the node has the label.
func (s supposed) against(pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	total := int64(0)
	s.whatIf.Each(func(p *framework.PodInfo, by int64) {
		if p.Affinity == nil {
			return
		}
		for i := range p.Affinity.AntiAffinity {
			t := &p.Affinity.AntiAffinity[i]
			if _, ok := node.Node.GetMetadata().GetLabels()[t.Key]; ok && t.Pods.Counts(pod.Pod, s.namespaces) {
				total += by
			}
		}
	})
	return total
}
