package naive

import (
	"math"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// constraints returns the pod's constraints of one kind: "DoNotSchedule" or "ScheduleAnyway".
func constraints(pod *corev1.Pod, kind string) []*corev1.TopologySpreadConstraint {
	var list []*corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == kind {
			list = append(list, c)
		}
	}
	return list
}

func hasKeys(node *corev1.Node, constraints []*corev1.TopologySpreadConstraint) bool {
	for _, c := range constraints {
		if _, ok := node.Metadata.Labels[c.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

// included says whether the constraint's policies let the node take part.
func included(c *corev1.TopologySpreadConstraint, pod *corev1.Pod, node *corev1.Node) bool {
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == "Honor") && !selects(pod, node) {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == "Ignore" || toleratesHard(pod, node)
}

// counts says whether the constraint of the pod selects these labels. Values of matchLabelKeys are those of the pod;
// keys that it lacks play no part. A selector that is absent or empty selects nothing.
func counts(c *corev1.TopologySpreadConstraint, pod *corev1.Pod, labels map[string]string) bool {
	if c.LabelSelector == nil {
		return false
	}
	tests := 0
	for k, v := range c.LabelSelector.MatchLabels {
		if !test("In", []string{v}, labels[k], has(labels, k)) {
			return false
		}
		tests++
	}
	for _, r := range c.LabelSelector.MatchExpressions {
		if !test(r.Operator, r.Values, labels[r.Key], has(labels, r.Key)) {
			return false
		}
		tests++
	}
	for _, k := range c.MatchLabelKeys {
		v, ok := pod.Metadata.Labels[k]
		if !ok {
			continue
		}
		if !test("In", []string{v}, labels[k], has(labels, k)) {
			return false
		}
		tests++
	}
	return tests > 0
}

func has(labels map[string]string, key string) bool {
	_, ok := labels[key]
	return ok
}

// matching counts the pods of a node that the constraint selects, of the pod's namespace and not terminating.
func (c *Cluster) matching(con *corev1.TopologySpreadConstraint, pod *corev1.Pod, node *corev1.Node) int64 {
	n := int64(0)
	for _, o := range c.on(node) {
		m := o.Metadata
		if m.Namespace == pod.Metadata.Namespace && m.DeletionTimestamp == nil && counts(con, pod, m.Labels) {
			n++
		}
	}
	return n
}

// domains counts the pods that the constraint selects by the value of its key, on the nodes that have the keys of all
// constraints of its kind.
func (c *Cluster) domains(con *corev1.TopologySpreadConstraint, pod *corev1.Pod) map[string]int64 {
	counts := map[string]int64{}
	for _, node := range c.nodes {
		if hasKeys(node, constraints(pod, con.WhenUnsatisfiable)) && included(con, pod, node) {
			counts[node.Metadata.Labels[con.TopologyKey]] += c.matching(con, pod, node)
		}
	}
	return counts
}

// globalMin is the smallest count of a domain, 0 when there are fewer domains than asked for.
func globalMin(con *corev1.TopologySpreadConstraint, domains map[string]int64) int64 {
	want := int32(1)
	if con.MinDomains != nil {
		want = *con.MinDomains
	}
	if len(domains) < int(want) {
		return 0
	}
	least := int64(math.MaxInt64)
	for _, n := range domains {
		least = min(least, n)
	}
	return least
}

// spec: SPREAD-2
func spread(c *Cluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string) {
	for _, con := range constraints(pod, "DoNotSchedule") {
		value, ok := node.Metadata.Labels[con.TopologyKey]
		if !ok {
			return true, []string{"node(s) didn't match pod topology spread constraints (missing required label)"}
		}
		domains := c.domains(con, pod)
		self := int64(0)
		if counts(con, pod, pod.Metadata.Labels) {
			self = 1
		}
		if domains[value]+self-globalMin(con, domains) > int64(con.MaxSkew) {
			return false, []string{"node(s) didn't match pod topology spread constraints"}
		}
	}
	return false, nil
}

// spec: SPREAD-3
func spreadScore(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	soft := constraints(pod, "ScheduleAnyway")
	if len(soft) == 0 {
		return nil
	}
	scores := make([]int64, len(fit))
	least, most := int64(math.MaxInt64), int64(0)
	for i, node := range fit {
		if hasKeys(node, soft) {
			scores[i] = c.spreadSum(pod, node, fit, soft)
			least, most = min(least, scores[i]), max(most, scores[i])
		}
	}
	for i, node := range fit {
		switch {
		case !hasKeys(node, soft):
			scores[i] = 0
		case most == 0:
			scores[i] = 100
		default:
			scores[i] = 100 * (most + least - scores[i]) / most
		}
	}
	return scores
}

// spreadSum is the raw score of a node: the more pods there are around it, the more.
func (c *Cluster) spreadSum(pod *corev1.Pod, node *corev1.Node, fit []*corev1.Node,
	soft []*corev1.TopologySpreadConstraint,
) int64 {
	sum := 0.0
	for _, con := range soft {
		values := map[string]bool{}
		size := 0
		for _, n := range fit {
			if hasKeys(n, soft) {
				size++
				values[n.Metadata.Labels[con.TopologyKey]] = true
			}
		}
		var count int64
		if con.TopologyKey == "kubernetes.io/hostname" {
			count = c.matching(con, pod, node) // each node for itself, whatever the label says
		} else {
			size = len(values)
			count = c.domains(con, pod)[node.Metadata.Labels[con.TopologyKey]]
		}
		sum += float64(count)*math.Log(float64(size+2)) + float64(con.MaxSkew-1)
	}
	return int64(math.Round(sum))
}

// group is a Service, or a workload if it has a kind.
type group struct {
	namespace, kind, name string
	selector              *metav1.LabelSelector
}

func (g *group) has(pod *corev1.Pod) bool {
	if g.namespace != pod.Metadata.Namespace {
		return false
	}
	if g.kind == "" {
		for k, v := range g.selector.MatchLabels {
			if !test("In", []string{v}, pod.Metadata.Labels[k], has(pod.Metadata.Labels, k)) {
				return false
			}
		}
		return true
	}
	for _, o := range pod.Metadata.OwnerReferences {
		if o.GetController() && o.ApiVersion == "apps/v1" && o.Kind == g.kind && o.Name == g.name {
			return true
		}
	}
	return false
}

// defaults are the constraints of pods that have none: a list, or those of System.
type defaults struct {
	system bool
	list   []*corev1.TopologySpreadConstraint
	groups []group
}

// given returns the pod with the constraints that it gets written out, and whether it gets any (spec: SPREAD-4).
func (n *defaults) given(pod *corev1.Pod) (*corev1.Pod, bool) {
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		return pod, false
	}
	selector := &metav1.LabelSelector{}
	for _, g := range n.groups {
		if !g.has(pod) {
			continue
		}
		for k, v := range g.selector.MatchLabels {
			test := &metav1.LabelSelectorRequirement{Key: k, Operator: "In", Values: []string{v}}
			selector.MatchExpressions = append(selector.MatchExpressions, test)
		}
		selector.MatchExpressions = append(selector.MatchExpressions, g.selector.MatchExpressions...)
	}
	list := n.list
	if n.system {
		list = []*corev1.TopologySpreadConstraint{
			{TopologyKey: "kubernetes.io/hostname", MaxSkew: 3, WhenUnsatisfiable: "ScheduleAnyway"},
			{TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 5, WhenUnsatisfiable: "ScheduleAnyway"},
		}
	}
	if len(selector.MatchExpressions) == 0 || len(list) == 0 {
		return pod, false
	}
	p := object.Clone(pod)
	for _, c := range list {
		c = object.Clone(c)
		c.LabelSelector = selector
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	return p, true
}

// systemScore is spreadScore with System's constraints: a node that lacks the label of one is rated by the other, and
// the nodes without a zone are one more domain (spec: SPREAD-3).
func systemScore(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	scores := make([]int64, len(fit))
	least, most := int64(math.MaxInt64), int64(0)
	for i, node := range fit {
		sum := 0.0
		for _, con := range pod.Spec.TopologySpreadConstraints {
			value, ok := node.Metadata.Labels[con.TopologyKey]
			if !ok {
				continue
			}
			size, count := len(fit), c.matching(con, pod, node)
			if con.TopologyKey != "kubernetes.io/hostname" {
				zones := map[string]bool{}
				for _, n := range fit {
					zones[n.Metadata.Labels[con.TopologyKey]] = true // no zone is named ""
				}
				size, count = len(zones), 0
				for _, n := range c.nodes {
					if n.Metadata.Labels[con.TopologyKey] == value && included(con, pod, n) {
						count += c.matching(con, pod, n)
					}
				}
			}
			sum += float64(count)*math.Log(float64(size+2)) + float64(con.MaxSkew-1)
		}
		scores[i] = int64(math.Round(sum))
		least, most = min(least, scores[i]), max(most, scores[i])
	}
	for i := range scores {
		if most == 0 {
			scores[i] = 100
		} else {
			scores[i] = 100 * (most + least - scores[i]) / most
		}
	}
	return scores
}
