// Package nodeports refuses nodes on which a host port that the pod wants is taken (spec: SCHED-4).
package nodeports

import (
	"monoplane.dev/rules/hostports"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodePorts"

// Plugin implements PreFilter and Filter.
type Plugin struct{ skip, refused *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip: framework.NewStatus(framework.Skip, Name),
		refused: framework.NewStatus(framework.Unschedulable, Name,
			"node(s) didn't have free ports for the requested pod ports"),
	}
}

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.NodeLocal = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// NodeLocal says that all that the filter looks at is the pod's spec and the node.
func (*Plugin) NodeLocal() bool { return true }

// PreFilter skips pods without host ports.
func (p *Plugin) PreFilter(
	_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Ports) == 0 {
		return nil, p.skip
	}
	return nil, nil
}

// Filter refuses nodes with a conflicting port.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if _, taken := hostports.Taken(pod.Ports, node.Ports); taken {
		return p.refused
	}
	return nil
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded | framework.PodGone }

// Helps says whether a change can help: a new node, or the end of a pod in the way.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	if c.Event == framework.NodeAdded {
		return true
	}
	_, freed := hostports.Taken(pod.Ports, hostports.Of(c.OldPod.GetSpec()))
	return freed
}
