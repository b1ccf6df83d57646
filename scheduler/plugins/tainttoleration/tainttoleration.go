// Package tainttoleration refuses nodes with taints that the pod does not tolerate, and prefers nodes with fewer
// untolerated PreferNoSchedule taints (spec: SCHED-4, SCHED-5).
package tainttoleration

import (
	"monoplane.dev/rules/taints"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "TaintToleration"

// Plugin implements Filter, PreScore, Score and NormalizeScore.
type Plugin struct{ skip, refused *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip:    framework.NewStatus(framework.Skip, Name),
		refused: framework.NewStatus(framework.Unresolvable, Name, "node(s) had untolerated taint(s)"),
	}
}

var (
	_ framework.Filter         = (*Plugin)(nil)
	_ framework.PreScore       = (*Plugin)(nil)
	_ framework.NormalizeScore = (*Plugin)(nil)
	_ framework.NodeLocal      = (*Plugin)(nil)
	_ framework.Enqueue        = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// NodeLocal says that all that the filter looks at is the pod's spec and the node.
func (*Plugin) NodeLocal() bool { return true }

// Filter refuses nodes with an untolerated NoSchedule or NoExecute taint.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if len(node.Taints) > 0 && taints.Untolerated(node.Taints, pod.Pod.GetSpec().GetTolerations()) != nil {
		return p.refused
	}
	return nil
}

// PreScore skips the plugin when no node has a taint to avoid.
func (p *Plugin) PreScore(
	_ *framework.CycleState, _ *framework.PodInfo, nodes []*framework.NodeInfo,
) *framework.Status {
	for _, n := range nodes {
		if n.Avoid {
			return nil
		}
	}
	return p.skip
}

// Score counts the taints to avoid; NormalizeScore turns the order round.
func (*Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	n := int64(0)
	for _, t := range node.Taints {
		if t.GetEffect() == taints.PreferNoSchedule && !taints.Tolerated(pod.Pod.GetSpec().GetTolerations(), t) {
			n++
		}
	}
	return n
}

// NormalizeScore gives the node with the most such taints 0, a node without any the best score.
func (*Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	most := int64(0)
	for _, s := range scores {
		most = max(most, s)
	}
	for i, s := range scores {
		if most == 0 {
			scores[i] = framework.MaxScore
		} else {
			scores[i] = framework.MaxScore - s*framework.MaxScore/most
		}
	}
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded | framework.NodeTaints }

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return taints.Untolerated(c.Node.GetSpec().GetTaints(), pod.Pod.GetSpec().GetTolerations()) == nil
}
