// Package nodeunschedulable refuses cordoned nodes (spec: SCHED-4, NODE-5), unless the pod tolerates the taint
// node.kubernetes.io/unschedulable.
package nodeunschedulable

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/taints"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodeUnschedulable"

// Plugin implements Filter.
type Plugin struct {
	refused *framework.Status
	taint   *corev1.Taint
}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		refused: framework.NewStatus(framework.Unresolvable, Name, "node(s) were unschedulable"),
		taint:   &corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: taints.NoSchedule},
	}
}

var (
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.NodeLocal = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// NodeLocal says that all that the filter looks at is the pod's spec and the node.
func (*Plugin) NodeLocal() bool { return true }

// Filter refuses cordoned nodes.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if !node.Unschedulable || p.tolerated(pod) {
		return nil
	}
	return p.refused
}

func (p *Plugin) tolerated(pod *framework.PodInfo) bool {
	return taints.Tolerated(pod.Pod.GetSpec().GetTolerations(), p.taint)
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded | framework.NodeTaints }

// Helps says whether a change can help.
func (p *Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return !c.Node.GetSpec().GetUnschedulable() || p.tolerated(pod)
}
