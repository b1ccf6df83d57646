// Package noderesources refuses nodes without room for the pod's effective requests (spec: SCHED-4, INIT-3), and prefers
// the least used ones (spec: SCHED-5, NodeResourcesFit with LeastAllocated).
//
// Room is what the node declares allocatable minus the requests of all its pods, those assumed there included. What
// pods really use plays no part.
package noderesources

import (
	"slices"

	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodeResourcesFit"

// The bits of what a node can lack without a scalar resource being involved.
const (
	lackPods = 1 << iota
	lackCPU
	lackMemory
	lackStorage
	lackCombinations
)

var reasonOrder = [...]string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}

// Plugin implements Filter and Score.
type Plugin struct {
	// refused and never hold a status for each combination of the bits above: refused when the room is taken, never when the
	// node is too small even when empty.
	refused, never [lackCombinations]*framework.Status
}

// New returns the plugin.
func New() *Plugin {
	p := &Plugin{}
	for bits := 1; bits < lackCombinations; bits++ {
		var reasons []string
		for i, r := range reasonOrder {
			if bits&(1<<i) != 0 {
				reasons = append(reasons, r)
			}
		}
		p.refused[bits] = framework.NewStatus(framework.Unschedulable, Name, reasons...)
		p.never[bits] = framework.NewStatus(framework.Unresolvable, Name, reasons...)
	}
	return p
}

var (
	_ framework.Filter  = (*Plugin)(nil)
	_ framework.Score   = (*Plugin)(nil)
	_ framework.Enqueue = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Filter refuses nodes without room.
func (p *Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	need, have, used := &pod.Requests, &node.Allocatable, &node.Requested
	lack, hopeless := 0, false
	if len(node.Pods())+1 > node.AllowedPods {
		lack |= lackPods
		hopeless = node.AllowedPods == 0
	}
	if short(need.MilliCPU, have.MilliCPU, used.MilliCPU) {
		lack |= lackCPU
		hopeless = hopeless || need.MilliCPU > have.MilliCPU
	}
	if short(need.Memory, have.Memory, used.Memory) {
		lack |= lackMemory
		hopeless = hopeless || need.Memory > have.Memory
	}
	if short(need.EphemeralStorage, have.EphemeralStorage, used.EphemeralStorage) {
		lack |= lackStorage
		hopeless = hopeless || need.EphemeralStorage > have.EphemeralStorage
	}
	if len(need.Scalar) > 0 {
		if s := p.scalars(need, have, used, lack, hopeless); s != nil {
			return s
		}
	}
	switch {
	case lack == 0:
		return nil
	case hopeless:
		return p.never[lack]
	default:
		return p.refused[lack]
	}
}

// short says whether need does not fit beside used. What is not needed is never short, however overcommitted the node.
func short(need, have, used int64) bool { return need > 0 && need > have-used }

// scalars returns a status when a resource of another name is short, with the other reasons in it.
func (p *Plugin) scalars(need, have, used *framework.Resources, lack int, hopeless bool) *framework.Status {
	var reasons []string
	for name, n := range need.Scalar {
		if short(n, have.Scalar[name], used.Scalar[name]) {
			reasons = append(reasons, "Insufficient "+name)
			hopeless = hopeless || n > have.Scalar[name]
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	if lack != 0 {
		reasons = slices.Concat(p.refused[lack].Reasons(), reasons)
	}
	code := framework.Unschedulable
	if hopeless {
		code = framework.Unresolvable
	}
	return framework.NewStatus(code, Name, reasons...)
}

// Score is the mean of the shares of cpu and memory that would be left, in whole per cents.
func (*Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	cpu := left(node.Allocatable.MilliCPU, node.Counted.MilliCPU+pod.Counted.MilliCPU, node.CPUShare)
	memory := left(node.Allocatable.Memory, node.Counted.Memory+pod.Counted.Memory, node.MemoryShare)
	if node.CPUShare == 0 || node.MemoryShare == 0 {
		return cpu + memory // the node does not say how much it has of the other
	}
	return (cpu + memory) / 2
}

// left returns the per cents that are left. The little extra makes up for rounding, so that a whole per cent stays one.
func left(capacity, used int64, share float64) int64 {
	return max(0, int64(float64(capacity-used)*share+1e-9))
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeAllocatable | framework.PodGone | framework.PodShrunk
}

// Helps says whether a change can help.
func (p *Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	switch c.Event {
	case framework.NodeAdded, framework.NodeAllocatable:
		// On an empty node of that size the pod must fit.
		return p.Filter(nil, pod, framework.NewNodeInfo("", c.Node)) == nil
	default:
		return true
	}
}
