// Package noderesources refuses nodes without room for the pod's effective requests (spec: SCHED-4, INIT-3), and rates
// the others by how much of them would be used (spec: SCHED-5, NodeResourcesFit): the least used ones first, unless it
// is configured otherwise.
//
// Room is what the node declares allocatable minus the requests of all its pods, those assumed there included. What
// pods really use plays no part.
package noderesources

import (
	"math"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/resources"
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

var reasonOrder = [...]string{"Too many pods", "Insufficient cpu", "Insufficient memory",
	"Insufficient ephemeral-storage"}

// Plugin implements Filter and Score.
type Plugin struct {
	// refused and never hold a status for each combination of the bits above: refused when the room is taken, never when
	// the node is too small even when empty.
	refused, never [lackCombinations]*framework.Status
	// rating is nil for the default strategy.
	rating *rating
	// ignored are resources, ignoredGroups the first parts of their names.
	ignored, ignoredGroups []string
}

// New returns the plugin.
func New(args FitArgs) (*Plugin, error) {
	if err := args.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{
		rating:  newRating(args.ScoringStrategy),
		ignored: slices.Clone(args.IgnoredResources), ignoredGroups: slices.Clone(args.IgnoredResourceGroups),
	}
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
	return p, nil
}

var (
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.Score     = (*Plugin)(nil)
	_ framework.NodeLocal = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// NodeLocal says that all that the filter looks at is the pod's spec and the node.
func (*Plugin) NodeLocal() bool { return true }

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
		if short(n, have.Scalar[name], used.Scalar[name]) && !p.ignores(name) {
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

// ignores says whether a resource is left to others. Only extended resources can be.
func (p *Plugin) ignores(name string) bool {
	if len(p.ignored) == 0 && len(p.ignoredGroups) == 0 {
		return false
	}
	group, _, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(name, "kubernetes.io/") {
		return false
	}
	return slices.Contains(p.ignored, name) || slices.Contains(p.ignoredGroups, group)
}

// Score rates a node by what would be used of it.
func (p *Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	if p.rating != nil {
		return p.rating.score(pod, node)
	}
	return usual(pod, node)
}

// usual is the default strategy: the mean of the shares of cpu and memory that would be left, in whole per cents.
func usual(pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	cpu := left(node.Allocatable.MilliCPU, node.Counted.MilliCPU, pod.Counted.MilliCPU, node.CPUShare)
	memory := left(node.Allocatable.Memory, node.Counted.Memory, pod.Counted.Memory, node.MemoryShare)
	if node.CPUShare == 0 || node.MemoryShare == 0 {
		return cpu + memory // the node does not say how much it has of the other
	}
	return (cpu + memory) / 2
}

// maxExact is the largest capacity that can be multiplied by MaxScore.
const maxExact = math.MaxInt64 / (framework.MaxScore + 1)

// left returns the whole per cents of the capacity that are left. Multiplying by the share is quicker than dividing,
// and mostly exact; where it is not, it is one off.
func left(capacity, used, need int64, share float64) int64 {
	free := capacity - used
	if free < need {
		return 0
	}
	free -= need
	q := int64(float64(free) * share)
	if share == 0 || capacity > maxExact {
		return q
	}
	switch {
	case (q+1)*capacity <= free*framework.MaxScore:
		return q + 1
	case q*capacity > free*framework.MaxScore:
		return q - 1
	default:
		return q
	}
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
	case framework.PodShrunk:
		return shrunk(c.OldPod, c.Pod)
	default:
		return true
	}
}

// shrunk says whether a pod holds less of anything than before. Most changes of pods, such as the start of a
// deletion, are about something else.
func shrunk(old, now *corev1.Pod) bool {
	was, is := framework.PodRequests(resources.Held(old)), framework.PodRequests(resources.Held(now))
	less := is.MilliCPU < was.MilliCPU || is.Memory < was.Memory || is.EphemeralStorage < was.EphemeralStorage
	for name, n := range was.Scalar {
		less = less || is.Scalar[name] < n
	}
	return less
}
