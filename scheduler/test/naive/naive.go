// Package naive is the scheduler's specification once more (SCHED-4, SCHED-5, SPREAD-1 to SPREAD-3, PREEMPT-1 to
// PREEMPT-4, ATT-2), written as plainly as possible and without a look at the plugins, so that it can disagree with
// them. It keeps nothing: for each question it goes through all nodes and all pods. Its tests compare the scheduler
// with it on random clusters, which Dice makes.
package naive

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

// Cluster is a cluster as plain lists. The pods have a spec.nodeName.
type Cluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	// namespaces are the labels of namespaces.
	namespaces map[string]map[string]string
}

// refusal is why a plugin refuses a node. It is hopeless when removing pods from the node could not help.
type refusal struct {
	plugin   string
	hopeless bool
	reasons  []string
}

// verdict is what the naive scheduler thinks of a node for a pod.
type verdict struct {
	// refusals are those of all filters that refuse, in their order; none when the pod fits.
	refusals []refusal
	// scores are the normalised scores per plugin. A plugin without an opinion on the pod is not there.
	scores map[string]int64
	total  int64
}

// filter says whether the pod fits the node; reasons are those against it.
type filter func(c *Cluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string)

// score scores the nodes that fit from 0 to 100; nil when it has no opinion on the pod.
type score func(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64

func allFilters() map[string]filter {
	return map[string]filter{
		"NodeUnschedulable": cordon,
		"NodeName":          nodeName,
		"TaintToleration":   taints,
		"NodeAffinity":      affinity,
		"NodePorts":         ports,
		"NodeResourcesFit":  fit,
		"PodTopologySpread": spread,
		"InterPodAffinity":  podAffinity,
	}
}

// weighted is a score with its default weight (spec: SCHED-5).
type weighted struct {
	score  score
	weight int64
}

func allScores() map[string]weighted {
	return map[string]weighted{
		"TaintToleration":                 {taintScore, 3},
		"NodeAffinity":                    {affinityScore, 2},
		"PodTopologySpread":               {spreadScore, 2},
		"InterPodAffinity":                {podAffinityScore, 2},
		"NodeResourcesFit":                {leastAllocated, 1},
		"NodeResourcesBalancedAllocation": {balanced, 1},
		"ImageLocality":                   {imageScore, 1},
	}
}

// explain judges every node with the named filters, and those that fit with the named scores. Names that the naive
// scheduler does not know are left out.
func (c *Cluster) explain(pod *corev1.Pod, filters, scores []string) map[string]*verdict {
	verdicts := map[string]*verdict{}
	var fit []*corev1.Node
	for _, node := range c.nodes {
		v := &verdict{scores: map[string]int64{}}
		for _, name := range filters {
			filter, ok := allFilters()[name]
			if !ok {
				continue
			}
			if hopeless, reasons := filter(c, pod, node); len(reasons) > 0 {
				slices.Sort(reasons)
				v.refusals = append(v.refusals, refusal{name, hopeless, reasons})
			}
		}
		if len(v.refusals) == 0 {
			fit = append(fit, node)
		}
		verdicts[node.Metadata.Name] = v
	}
	for _, name := range scores {
		w, ok := allScores()[name]
		if !ok {
			continue
		}
		for i, score := range w.score(c, pod, fit) {
			v := verdicts[fit[i].Metadata.Name]
			v.scores[name] = score
			v.total += score * w.weight
		}
	}
	return verdicts
}

// Nodes returns the nodes.
func (c *Cluster) Nodes() []*corev1.Node { return c.nodes }

// Pods returns the pods, each with its node.
func (c *Cluster) Pods() []*corev1.Pod { return c.pods }

// on returns the pods of a node.
func (c *Cluster) on(node *corev1.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range c.pods {
		if p.Spec.NodeName == node.Metadata.Name {
			pods = append(pods, p)
		}
	}
	return pods
}

// normalise makes the largest score 100, or with turned the smallest; all nodes without a score are the best when
// turned.
func normalise(scores []int64, turned bool) []int64 {
	largest := int64(0)
	for _, s := range scores {
		largest = max(largest, s)
	}
	for i, s := range scores {
		if largest > 0 {
			s = 100 * s / largest
		}
		if turned {
			s = 100 - s
		}
		scores[i] = s
	}
	return scores
}
