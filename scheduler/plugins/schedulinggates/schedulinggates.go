// Package schedulinggates keeps pods with scheduling gates out of the queue until the last gate is removed (spec:
// SCHED-2).
package schedulinggates

import "monoplane.dev/scheduler/framework"

// Name is the plugin's name.
const Name = "SchedulingGates"

// Plugin implements PreEnqueue.
type Plugin struct{ gated *framework.Status }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{framework.NewStatus(framework.Unresolvable, Name,
		"Scheduling is blocked due to non-empty scheduling gates")}
}

var _ framework.PreEnqueue = (*Plugin)(nil)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// PreEnqueue refuses gated pods.
func (p *Plugin) PreEnqueue(pod *framework.PodInfo) *framework.Status {
	if len(pod.Pod.GetSpec().GetSchedulingGates()) > 0 {
		return p.gated
	}
	return nil
}
