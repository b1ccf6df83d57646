// Package nodeselector filters nodes by spec.nodeSelector and by the required node affinity (spec: SCHED-4). Under
// Kubernetes' name for it, NodeAffinity, since configuration and messages use that.
//
// What it does not do yet: score the preferred node affinity.
package nodeselector

import (
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodeAffinity"

// Plugin implements PreFilter and Filter.
type Plugin struct{ skip, refused *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip:    framework.NewStatus(framework.Skip, Name),
		refused: framework.NewStatus(framework.Unresolvable, Name, "node(s) didn't match Pod's node affinity/selector"),
	}
}

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// PreFilter skips pods that select no nodes.
func (p *Plugin) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Pod.GetSpec().GetNodeSelector()) == 0 && required(pod) == nil {
		return nil, p.skip
	}
	return nil, nil
}

// Filter refuses nodes that are not selected.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if Matches(pod.Pod.GetSpec(), node.Node) {
		return nil
	}
	return p.refused
}

func required(pod *framework.PodInfo) *corev1.NodeSelector {
	return pod.Pod.GetSpec().GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

// Matches says whether the node has all labels of the node selector and matches the required node affinity.
func Matches(spec *corev1.PodSpec, node *corev1.Node) bool {
	labels := node.GetMetadata().GetLabels()
	for k, v := range spec.GetNodeSelector() {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	sel := spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	if sel == nil {
		return true
	}
	for _, term := range sel.GetNodeSelectorTerms() {
		if matchesTerm(term, node) {
			return true
		}
	}
	return false
}

// matchesTerm needs all requirements of a term; a term without any matches nothing.
func matchesTerm(t *corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(t.GetMatchExpressions()) == 0 && len(t.GetMatchFields()) == 0 {
		return false
	}
	for _, r := range t.GetMatchExpressions() {
		v, ok := node.GetMetadata().GetLabels()[r.GetKey()]
		if !matches(r, v, ok) {
			return false
		}
	}
	for _, r := range t.GetMatchFields() {
		if r.GetKey() != "metadata.name" || !matches(r, node.GetMetadata().GetName(), true) {
			return false
		}
	}
	return true
}

func matches(r *corev1.NodeSelectorRequirement, v string, has bool) bool {
	switch r.GetOperator() {
	case "In":
		return has && contains(r.GetValues(), v)
	case "NotIn":
		return !has || !contains(r.GetValues(), v)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "Gt", "Lt":
		if !has || len(r.GetValues()) != 1 {
			return false
		}
		got, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return false
		}
		want, err := strconv.ParseInt(r.GetValues()[0], 10, 64)
		if err != nil {
			return false
		}
		return r.GetOperator() == "Gt" && got > want || r.GetOperator() == "Lt" && got < want
	default:
		return false
	}
}

func contains(list []string, v string) bool {
	for _, s := range list {
		if s == v {
			return true
		}
	}
	return false
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded | framework.NodeLabels }

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return Matches(pod.Pod.GetSpec(), c.Node)
}
