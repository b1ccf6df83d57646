package naive

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
)

// plea is a pod that may need room that others take, in a cluster as plain lists: PREEMPT-1, PREEMPT-3 and PREEMPT-4
// once more, written without a look at the plugin.
type plea struct {
	*Cluster
	pod *corev1.Pod
	// filters are the names of the filters in their order.
	filters []string
	// kept are the pods that room is kept for, by node.
	kept    map[string][]*corev1.Pod
	budgets []budget
}

// budget allows some disruptions among the pods with a label.
type budget struct {
	namespace, key, value string
	allowed               int
	disrupted             string
}

func (b *budget) about(p *corev1.Pod) bool {
	m := p.Metadata
	return m.Namespace == b.namespace && has(m.Labels, b.key) && m.Labels[b.key] == b.value && m.Name != b.disrupted
}

// sacrifice is what it costs to make room on a node.
type sacrifice struct {
	node    string
	victims []*corev1.Pod
	broken  int
}

// refusal is why the pod does not fit on the node once the pods of these uids are gone; nil when it fits. It must fit
// beside the pods of the same or higher priority that room is kept for on this node, and without them.
func (n *plea) refusal(node *corev1.Node, gone map[string]bool) *refusal {
	without := &Cluster{nodes: n.nodes, namespaces: n.namespaces}
	for _, p := range n.pods {
		if !gone[p.Metadata.Uid] {
			without.pods = append(without.pods, p)
		}
	}
	with := &Cluster{nodes: n.nodes, namespaces: n.namespaces, pods: slices.Clone(without.pods)}
	for _, k := range n.kept[node.Metadata.Name] {
		if k.Spec.GetPriority() >= n.pod.Spec.GetPriority() && k.Metadata.Uid != n.pod.Metadata.Uid {
			there := object.Clone(k)
			there.Spec.NodeName = node.Metadata.Name
			with.pods = append(with.pods, there)
		}
	}
	for _, c := range []*Cluster{with, without} {
		for _, name := range n.filters {
			if filter, ok := allFilters()[name]; ok {
				if hopeless, reasons := filter(c, n.pod, node); len(reasons) > 0 {
					return &refusal{name, hopeless, reasons}
				}
			}
		}
	}
	return nil
}

// fits says whether any node takes the pod as things are.
func (n *plea) fits() bool {
	return slices.ContainsFunc(n.nodes, func(node *corev1.Node) bool { return n.refusal(node, nil) == nil })
}

// sacrifices are those of all nodes on which room can be made, and why it cannot be made on the others, by reason.
func (n *plea) sacrifices() (all []sacrifice, reasons map[string]int) {
	reasons = map[string]int{}
	for _, node := range n.nodes {
		if n.refusal(node, nil).hopeless {
			reasons["Preemption is not helpful for scheduling"]++
			continue
		}
		lower, gone := n.lower(node), map[string]bool{}
		for _, p := range lower {
			gone[p.Metadata.Uid] = true
		}
		if len(lower) == 0 {
			reasons["No preemption victims found for incoming pod"]++
			continue
		}
		if r := n.refusal(node, gone); r != nil {
			for _, text := range r.reasons {
				reasons[text]++
			}
			continue
		}
		all = append(all, n.spare(node, lower, gone))
	}
	return all, reasons
}

// lower are the node's pods of lower priority, the most important first: higher priority, then earlier start.
func (n *plea) lower(node *corev1.Node) []*corev1.Pod {
	var list []*corev1.Pod
	for _, p := range n.on(node) {
		if p.Spec.GetPriority() < n.pod.Spec.GetPriority() {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, importance)
	return list
}

func importance(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(b.Spec.GetPriority(), a.Spec.GetPriority()), cmp.Compare(start(a), start(b)))
}

// start is when a pod started, in seconds; a pod that has not is the latest.
func start(p *corev1.Pod) int64 {
	if t := p.Status.GetStartTime(); t != nil {
		return t.Seconds
	}
	return 1 << 50
}

// spare puts back what can stay: first those that a budget protects, then the others.
func (n *plea) spare(node *corev1.Node, lower []*corev1.Pod, gone map[string]bool) sacrifice {
	breaks := n.breaks(lower)
	s := sacrifice{node: node.Metadata.Name}
	for _, protected := range []bool{true, false} {
		for _, p := range lower {
			uid := p.Metadata.Uid
			if breaks[uid] != protected {
				continue
			}
			delete(gone, uid)
			if n.refusal(node, gone) == nil {
				continue
			}
			gone[uid] = true
			if protected {
				s.broken++
			}
		}
	}
	for _, p := range lower {
		if gone[p.Metadata.Uid] {
			s.victims = append(s.victims, p)
		}
	}
	return s
}

// breaks are the uids of the pods whose removal breaks a budget, when they go in this order.
func (n *plea) breaks(lower []*corev1.Pod) map[string]bool {
	broken, used := map[string]bool{}, make([]int, len(n.budgets))
	for _, p := range lower {
		for i := range n.budgets {
			if n.budgets[i].about(p) {
				if used[i]++; used[i] > n.budgets[i].allowed {
					broken[p.Metadata.Uid] = true
				}
			}
		}
	}
	return broken
}

// smallest are the sacrifices that none is smaller than.
func smallest(all []sacrifice) []sacrifice {
	criteria := []func(*sacrifice) int64{
		func(s *sacrifice) int64 { return int64(s.broken) },
		func(s *sacrifice) int64 { return int64(s.victims[0].Spec.GetPriority()) },
		func(s *sacrifice) int64 {
			sum := int64(0)
			for _, v := range s.victims {
				sum += int64(v.Spec.GetPriority()) + 1<<31
			}
			return sum
		},
		func(s *sacrifice) int64 { return int64(len(s.victims)) },
		func(s *sacrifice) int64 {
			earliest := start(s.victims[0])
			for _, v := range s.victims {
				if v.Spec.GetPriority() == s.victims[0].Spec.GetPriority() {
					earliest = min(earliest, start(v))
				}
			}
			return -earliest
		},
	}
	for _, cost := range criteria {
		if len(all) == 0 {
			return nil
		}
		least := cost(&all[0])
		for i := range all {
			least = min(least, cost(&all[i]))
		}
		var kept []sacrifice
		for i := range all {
			if cost(&all[i]) == least {
				kept = append(kept, all[i])
			}
		}
		all = kept
	}
	return all
}

// hopeless words that there is no room to be made.
func hopeless(nodes int, reasons map[string]int) string {
	var texts []string
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		texts = append(texts, fmt.Sprint(reasons[r], " ", r))
	}
	slices.Sort(texts)
	return fmt.Sprintf("preemption: 0/%d nodes are available: %s.", nodes, strings.Join(texts, ", "))
}
