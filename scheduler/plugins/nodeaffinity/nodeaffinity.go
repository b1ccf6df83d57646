// Package nodeaffinity chooses nodes by their labels and names: it refuses those that spec.nodeSelector or the
// required node affinity do not select (spec: SCHED-4), and prefers those that the preferred node affinity selects
// (spec: SCHED-5).
//
// It guarantees that a requirement that cannot be read, such as Gt without a number, selects no node, and that
// selectors are read once per decision.
package nodeaffinity

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/scheduler/framework"
)

// Name is the plugin's name.
const Name = "NodeAffinity"

// Plugin implements PreFilter, Filter, PreScore, Score and NormalizeScore.
type Plugin struct {
	// required and preferred are the added affinity; required is nil when none is added.
	required  *nodeselector.Required
	preferred []preference

	skip, refused, enforced, conflict *framework.Status
}

// Args configure the plugin.
type Args struct {
	// AddedAffinity is asked of the nodes of every pod, besides what the pod says itself.
	AddedAffinity *corev1.NodeAffinity
}

// New returns the plugin.
func New(args Args) (*Plugin, error) {
	if err := args.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{
		skip:     framework.NewStatus(framework.Skip, Name),
		refused:  framework.NewStatus(framework.Unresolvable, Name, "node(s) didn't match Pod's node affinity/selector"),
		enforced: framework.NewStatus(framework.Unresolvable, Name, "node(s) didn't match scheduler-enforced node affinity"),
		conflict: framework.NewStatus(framework.Unresolvable, Name, "pod affinity terms conflict"),
	}
	if s := args.AddedAffinity.GetRequiredDuringSchedulingIgnoredDuringExecution(); s != nil {
		p.required = nodeselector.Of(s)
	}
	p.preferred = readPreferences(args.AddedAffinity)
	return p, nil
}

var (
	_ framework.PreFilter      = (*Plugin)(nil)
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

// requiredKey is where PreFilter leaves the *choice for Filter.
type requiredKey struct{}

// choice is what is required in one decision: by the pod, and by the added affinity.
type choice struct{ own, added *Chosen }

// PreFilter skips pods that select no nodes, and restricts the nodes when the pod names them.
func (p *Plugin) PreFilter(
	state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot,
) (*framework.PreFilterResult, *framework.Status) {
	own := nodeselector.OfPod(pod.Pod.GetSpec())
	if !own.Chooses() && p.required == nil {
		return nil, p.skip
	}
	names := own.Names()
	if names != nil && len(names) == 0 {
		return nil, p.conflict
	}
	c := &choice{own: In(own, snapshot)}
	if p.required != nil {
		c.added = In(p.required, snapshot)
	}
	state.Write(requiredKey{}, c)
	if names == nil {
		return nil, nil
	}
	return &framework.PreFilterResult{NodeNames: names}, nil
}

// Filter refuses nodes that are not selected.
func (p *Plugin) Filter(
	state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo,
) *framework.Status {
	c, _ := state.Read(requiredKey{}).(*choice)
	switch {
	case c == nil:
		return nil
	case c.added != nil && !c.added.Matches(node):
		return p.enforced
	case !c.own.Matches(node):
		return p.refused
	default:
		return nil
	}
}

// Events are the changes that can help.
func (*Plugin) Events() framework.Event { return framework.NodeAdded | framework.NodeLabels }

// Helps says whether a change can help: a node that matches now and, when it was there before, did not.
func (p *Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	r := nodeselector.OfPod(pod.Pod.GetSpec())
	return p.selects(r, c.Node) && (c.OldNode == nil || !p.selects(r, c.OldNode))
}

func (p *Plugin) selects(r *nodeselector.Required, node *corev1.Node) bool {
	return (p.required == nil || p.required.Matches(node)) && r.Matches(node)
}
