package scheduler_test

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

// The naive scheduler is the specification once more (SCHED-4, SCHED-5, SPREAD-1 to SPREAD-3), written as plainly as possible and
// without a look at the plugins, so that it can disagree with them. It keeps nothing: for each question it goes through all nodes and
// all pods.

// naiveCluster is a cluster as plain lists. The pods have a spec.nodeName.
type naiveCluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	// namespaces are the labels of namespaces.
	namespaces map[string]map[string]string
}

// naiveRefusal is why a plugin refuses a node. It is hopeless when removing pods from the node could not help.
type naiveRefusal struct {
	plugin   string
	hopeless bool
	reasons  []string
}

// naiveVerdict is what the naive scheduler thinks of a node for a pod.
type naiveVerdict struct {
	// refusals are those of all filters that refuse, in their order; none when the pod fits.
	refusals []naiveRefusal
	// scores are the normalised scores per plugin. A plugin without an opinion on the pod is not there.
	scores map[string]int64
	total  int64
}

// naiveFilter says whether the pod fits the node; reasons are those against it.
type naiveFilter func(c *naiveCluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string)

// naiveScore scores the nodes that fit from 0 to 100; nil when it has no opinion on the pod.
type naiveScore func(c *naiveCluster, pod *corev1.Pod, fit []*corev1.Node) []int64

func naiveFilters() map[string]naiveFilter {
	return map[string]naiveFilter{
		"NodeUnschedulable": naiveCordon,
		"NodeName":          naiveNodeName,
		"TaintToleration":   naiveTaints,
		"NodeAffinity":      naiveAffinity,
		"NodePorts":         naivePorts,
		"NodeResourcesFit":  naiveFit,
		"PodTopologySpread": naiveSpread,
		"InterPodAffinity":  naivePodAffinity,
	}
}

// naiveWeighted is a score with its default weight (spec: SCHED-5).
type naiveWeighted struct {
	score  naiveScore
	weight int64
}

func naiveScores() map[string]naiveWeighted {
	return map[string]naiveWeighted{
		"TaintToleration":                 {naiveTaintScore, 3},
		"NodeAffinity":                    {naiveAffinityScore, 2},
		"PodTopologySpread":               {naiveSpreadScore, 2},
		"InterPodAffinity":                {naivePodAffinityScore, 2},
		"NodeResourcesFit":                {naiveLeastAllocated, 1},
		"NodeResourcesBalancedAllocation": {naiveBalanced, 1},
		"ImageLocality":                   {naiveImages, 1},
	}
}

// explain judges every node with the named filters, and those that fit with the named scores. Names that the naive scheduler does
// not know are left out.
func (c *naiveCluster) explain(pod *corev1.Pod, filters, scores []string) map[string]*naiveVerdict {
	verdicts := map[string]*naiveVerdict{}
	var fit []*corev1.Node
	for _, node := range c.nodes {
		v := &naiveVerdict{scores: map[string]int64{}}
		for _, name := range filters {
			filter, ok := naiveFilters()[name]
			if !ok {
				continue
			}
			if hopeless, reasons := filter(c, pod, node); len(reasons) > 0 {
				slices.Sort(reasons)
				v.refusals = append(v.refusals, naiveRefusal{name, hopeless, reasons})
			}
		}
		if len(v.refusals) == 0 {
			fit = append(fit, node)
		}
		verdicts[node.Metadata.Name] = v
	}
	for _, name := range scores {
		w, ok := naiveScores()[name]
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

// on returns the pods of a node.
func (c *naiveCluster) on(node *corev1.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range c.pods {
		if p.Spec.NodeName == node.Metadata.Name {
			pods = append(pods, p)
		}
	}
	return pods
}

// naiveNormalise makes the largest score 100, or with turned the smallest; all nodes without a score are the best when turned.
func naiveNormalise(scores []int64, turned bool) []int64 {
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
