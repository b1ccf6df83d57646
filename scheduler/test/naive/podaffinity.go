package naive

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Inter-pod affinity after Kubernetes' documentation (Assigning Pods to Nodes, and the API reference of
// PodAffinityTerm).

func near(pod *corev1.Pod) []*corev1.PodAffinityTerm {
	return pod.Spec.GetAffinity().GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

func apart(pod *corev1.Pod) []*corev1.PodAffinityTerm {
	return pod.Spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

// means says whether a term of owner is about the other pod.
func (c *Cluster) means(owner *corev1.Pod, t *corev1.PodAffinityTerm, other *corev1.Pod) bool {
	return c.inNamespaces(owner, t, other.Metadata.Namespace) && inLabels(owner, t, other.Metadata.Labels)
}

// inNamespaces: those listed and those selected; the owner's own when there is neither a list nor a selector.
func (c *Cluster) inNamespaces(owner *corev1.Pod, t *corev1.PodAffinityTerm, namespace string) bool {
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return namespace == owner.Metadata.Namespace
	}
	return slices.Contains(t.Namespaces, namespace) || t.NamespaceSelector != nil &&
		selected(t.NamespaceSelector, c.namespaces[namespace])
}

// inLabels: no selector selects nothing. The keys of matchLabelKeys must have the owner's values, those of
// mismatchLabelKeys must not; keys that the owner lacks play no part.
func inLabels(owner *corev1.Pod, t *corev1.PodAffinityTerm, labels map[string]string) bool {
	if t.LabelSelector == nil || !selected(t.LabelSelector, labels) {
		return false
	}
	for _, k := range t.MatchLabelKeys {
		if v, ok := owner.Metadata.Labels[k]; ok && (!has(labels, k) || labels[k] != v) {
			return false
		}
	}
	for _, k := range t.MismatchLabelKeys {
		if v, ok := owner.Metadata.Labels[k]; ok && has(labels, k) && labels[k] == v {
			return false
		}
	}
	return true
}

// selected: an empty selector selects everything.
func selected(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if !test("In", []string{v}, labels[k], has(labels, k)) {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		if !test(r.Operator, r.Values, labels[r.Key], has(labels, r.Key)) {
			return false
		}
	}
	return true
}

// meansAll says whether all terms of owner are about the other pod.
func (c *Cluster) meansAll(owner *corev1.Pod, terms []*corev1.PodAffinityTerm, other *corev1.Pod) bool {
	for _, t := range terms {
		if !c.means(owner, t, other) {
			return false
		}
	}
	return true
}

// together says whether two nodes are in one domain.
func together(key string, a, b *corev1.Node) bool {
	return has(a.Metadata.Labels, key) && has(b.Metadata.Labels, key) && a.Metadata.Labels[key] == b.Metadata.Labels[key]
}

// each visits all pods with their nodes.
func (c *Cluster) each(visit func(other *corev1.Pod, on *corev1.Node)) {
	for _, on := range c.nodes {
		for _, other := range c.on(on) {
			visit(other, on)
		}
	}
}

// spec: SCHED-4
func podAffinity(c *Cluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string) {
	if !c.attracted(pod, node) {
		return true, []string{"node(s) didn't match pod affinity rules"}
	}
	for _, t := range apart(pod) {
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			if c.means(pod, t, other) && together(t.TopologyKey, node, on) {
				reasons = []string{"node(s) didn't match pod anti-affinity rules"}
			}
		})
	}
	if reasons != nil {
		return false, reasons
	}
	c.each(func(other *corev1.Pod, on *corev1.Node) {
		for _, t := range apart(other) {
			if c.means(other, t, pod) && together(t.TopologyKey, node, on) {
				reasons = []string{"node(s) didn't satisfy existing pods anti-affinity rules"}
			}
		}
	})
	return false, reasons
}

// attracted: for each term there must be a pod, that all terms are about, in the node's domain. A pod that all of its
// own terms are about may go to any node with the labels as long as there is no such pod in any domain.
func (c *Cluster) attracted(pod *corev1.Pod, node *corev1.Node) bool {
	terms := near(pod)
	all, any := true, false
	for _, t := range terms {
		if !has(node.Metadata.Labels, t.TopologyKey) {
			return false
		}
		here := false
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			if c.meansAll(pod, terms, other) && has(on.Metadata.Labels, t.TopologyKey) {
				any = true
				here = here || together(t.TopologyKey, node, on)
			}
		})
		all = all && here
	}
	return all || !any && c.meansAll(pod, terms, pod)
}

// podAffinityScore adds up, for each pod in the node's domain, the weights of the terms of the new pod that are about
// it and of its terms that are about the new pod; its required terms of affinity count 1. Then the least becomes 0 and
// the most 100.
//
// spec: SCHED-5
func podAffinityScore(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	scores := make([]int64, len(fit))
	for i, node := range fit {
		c.each(func(other *corev1.Pod, on *corev1.Node) {
			scores[i] += c.preference(pod, other, node, on) + c.preference(other, pod, node, on)
			for _, t := range near(other) {
				if c.means(other, t, pod) && together(t.TopologyKey, node, on) {
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

// preference is the weight of what owner prefers about the other pod, when the two nodes are in one domain.
func (c *Cluster) preference(owner, other *corev1.Pod, a, b *corev1.Node) int64 {
	sum := int64(0)
	add := func(list []*corev1.WeightedPodAffinityTerm, sign int64) {
		for _, w := range list {
			if c.means(owner, w.PodAffinityTerm, other) && together(w.PodAffinityTerm.TopologyKey, a, b) {
				sum += sign * int64(w.Weight)
			}
		}
	}
	add(owner.Spec.GetAffinity().GetPodAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(), 1)
	add(owner.Spec.GetAffinity().GetPodAntiAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution(), -1)
	return sum
}
