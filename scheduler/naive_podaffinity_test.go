package scheduler_test

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Inter-pod affinity after Kubernetes' documentation (Assigning Pods to Nodes, and the API reference of PodAffinityTerm).

func naiveNear(pod *corev1.Pod) []*corev1.PodAffinityTerm {
	return pod.Spec.GetAffinity().GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

func naiveApart(pod *corev1.Pod) []*corev1.PodAffinityTerm {
	return pod.Spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

// naiveMeans says whether a term of owner is about the other pod.
func (c *naiveCluster) naiveMeans(owner *corev1.Pod, t *corev1.PodAffinityTerm, other *corev1.Pod) bool {
	return c.naiveInNamespaces(owner, t, other.Metadata.Namespace) && naiveInLabels(owner, t, other.Metadata.Labels)
}

// naiveInNamespaces: those listed and those selected; the owner's own when there is neither a list nor a selector.
func (c *naiveCluster) naiveInNamespaces(owner *corev1.Pod, t *corev1.PodAffinityTerm, namespace string) bool {
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return namespace == owner.Metadata.Namespace
	}
	return slices.Contains(t.Namespaces, namespace) || t.NamespaceSelector != nil && naiveSelected(t.NamespaceSelector, c.namespaces[namespace])
}

// naiveInLabels: no selector selects nothing. The keys of matchLabelKeys must have the owner's values, those of mismatchLabelKeys must
// not; keys that the owner lacks play no part.
func naiveInLabels(owner *corev1.Pod, t *corev1.PodAffinityTerm, labels map[string]string) bool {
	if t.LabelSelector == nil || !naiveSelected(t.LabelSelector, labels) {
		return false
	}
	for _, k := range t.MatchLabelKeys {
		if v, ok := owner.Metadata.Labels[k]; ok && (!naiveHas(labels, k) || labels[k] != v) {
			return false
		}
	}
	for _, k := range t.MismatchLabelKeys {
		if v, ok := owner.Metadata.Labels[k]; ok && naiveHas(labels, k) && labels[k] == v {
			return false
		}
	}
	return true
}

// naiveSelected: an empty selector selects everything.
func naiveSelected(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if !naiveTest("In", []string{v}, labels[k], naiveHas(labels, k)) {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		if !naiveTest(r.Operator, r.Values, labels[r.Key], naiveHas(labels, r.Key)) {
			return false
		}
	}
	return true
}

// naiveMeansAll says whether all terms of owner are about the other pod.
func (c *naiveCluster) naiveMeansAll(owner *corev1.Pod, terms []*corev1.PodAffinityTerm, other *corev1.Pod) bool {
	for _, t := range terms {
		if !c.naiveMeans(owner, t, other) {
			return false
		}
	}
	return true
}

// naiveTogether says whether two nodes are in one domain.
func naiveTogether(key string, a, b *corev1.Node) bool {
	return naiveHas(a.Metadata.Labels, key) && naiveHas(b.Metadata.Labels, key) && a.Metadata.Labels[key] == b.Metadata.Labels[key]
}

// each visits all pods with their nodes.
func (c *naiveCluster) each(visit func(other *corev1.Pod, on *corev1.Node)) {
	for _, on := range c.nodes {
		for _, other := range c.on(on) {
			visit(other, on)
		}
	}
}

// spec: SCHED-4
func naivePodAffinity(c *naiveCluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string) {
	if !c.naiveAttracted(pod, node) {
		return true, []string{"node(s) didn't match pod affinity rules"}
	}
	for _, t := range naiveApart(pod) {
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			if c.naiveMeans(pod, t, other) && naiveTogether(t.TopologyKey, node, on) {
				reasons = []string{"node(s) didn't match pod anti-affinity rules"}
			}
		})
	}
	if reasons != nil {
		return false, reasons
	}
	c.each(func(other *corev1.Pod, on *corev1.Node) {
		for _, t := range naiveApart(other) {
			if c.naiveMeans(other, t, pod) && naiveTogether(t.TopologyKey, node, on) {
				reasons = []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
			}
		}
	})
	return false, reasons
}

// naiveAttracted: for each term there must be a pod, that all terms are about, in the node's domain. A pod that all of its own terms are
// about may go to any node with the labels as long as there is no such pod in any domain.
func (c *naiveCluster) naiveAttracted(pod *corev1.Pod, node *corev1.Node) bool {
	terms := naiveNear(pod)
	all, any := true, false
	for _, t := range terms {
		if !naiveHas(node.Metadata.Labels, t.TopologyKey) {
			return false
		}
		here := false
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			if c.naiveMeansAll(pod, terms, other) && naiveHas(on.Metadata.Labels, t.TopologyKey) {
				any = true
				here = here || naiveTogether(t.TopologyKey, node, on)
			}
		})
		all = all && here
	}
	return all || !any && c.naiveMeansAll(pod, terms, pod)
}

// naivePodAffinityScore adds up, for each pod in the node's domain, the weights of the terms of the new pod that are about it and of its
// terms that are about the new pod; its required terms of affinity count 1. Then the least becomes 0 and the most 100.
//
// spec: SCHED-5
func naivePodAffinityScore(c *naiveCluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	scores := make([]int64, len(fit))
	for i, node := range fit {
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			scores[i] += c.naivePreference(pod, other, node, on) + c.naivePreference(other, pod, node, on)
			for _, t := range naiveNear(other) {
				if c.naiveMeans(other, t, pod) && naiveTogether(t.TopologyKey, node, on) {
					scores[i]++
				}
			}
		})
	}
	if len(scores) == 0 {
		return nil
	}
	least, most := slices.Min(scores), slices.Max(scores)
	for i, s := range scores {
		scores[i] = 0
		if most > least {
			scores[i] = int64(100 * (float64(s-least) / float64(most-least)))
		}
	}
	return scores
}

// naivePreference is the weight of what owner prefers about the other pod, when the two nodes are in one domain.
func (c *naiveCluster) naivePreference(owner, other *corev1.Pod, a, b *corev1.Node) int64 {
	sum := int64(0)
	add := func(list []*corev1.WeightedPodAffinityTerm, sign int64) {
		for _, w := range list {
			if c.naiveMeans(owner, w.PodAffinityTerm, other) && naiveTogether(w.PodAffinityTerm.TopologyKey, a, b) {
				sum += sign * int64(w.Weight)
			}
		}
	}
	add(owner.Spec.GetAffinity().GetPodAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(), 1)
	add(owner.Spec.GetAffinity().GetPodAntiAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(), -1)
	return sum
}
