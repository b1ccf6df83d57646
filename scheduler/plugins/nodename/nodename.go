// Package nodename filters nodes by spec.nodeName (spec: SCHED-4). A pod that is created with a node name never comes
// to the scheduler, so this matters only where filters are asked about bound pods.
package nodename

import "monoplane.dev/scheduler/framework"

// Name is the plugin's name.
const Name = "NodeName"

// Plugin implements PreFilter and Filter.
type Plugin struct{ skip, refused *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{
		skip:    framework.NewStatus(framework.Skip, Name),
		refused: framework.NewStatus(framework.Unresolvable, Name, "node(s) didn't match the requested node name"),
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

// PreFilter skips pods that name no node.
func (p *Plugin) PreFilter(
	_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	if pod.Pod.GetSpec().GetNodeName() == "" {
		return nil, p.skip
	}
	return nil, nil
}

// Filter refuses all nodes but the named one.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if name := pod.Pod.GetSpec().GetNodeName(); name != "" && name != node.Name {
		return p.refused
	}
	return nil
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded }

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return c.Node.GetMetadata().GetName() == pod.Pod.GetSpec().GetNodeName()
}
