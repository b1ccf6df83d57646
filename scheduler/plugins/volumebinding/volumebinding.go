// Package volumebinding finds nodes on which a pod can have its volumes (spec: SCHED-4, ATT-2): those that the pod's
// bound volumes can be reached from, whatever their type, and on which each claim that waits for its first consumer
// finds a free volume or may have one made. For the node that is picked it has the volumes bound before the pod is.
//
//	PreFilter, Filter, Reserve: decide on the snapshot --> PreBind: write the choice --> the binding controller binds
//	                                                              |  wait until all claims are bound
//	                                                              v
//	                                                      the pod is bound
//
// What it guarantees: two pods do not choose one volume, since what Reserve plans counts for later decisions; the
// server's compare-and-swap decides about everything else. PreBind writes only what still holds on the server, and
// lets no pod pass whose claims are not bound to volumes that its node can reach.
//
// What it does not do: it does not score nodes by the sizes of volumes, nor count the capacity of those that make
// them.
package volumebinding

import (
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/scheduler/framework"

	"google.golang.org/protobuf/proto"
)

// Name is the plugin's name.
const Name = "VolumeBinding"

// Plugin implements PreFilter, Filter, Reserve, PreFlight and PreBind.
type Plugin struct {
	client  *client.Client
	timeout time.Duration

	skip, immediate *framework.Status
	// refused are the refusals of nodes by what is wrong with bound claims, and whether others find no volume.
	refused [3][2]*framework.Status
}

// The opinions of bound claims about a node.
const (
	reachable = iota
	unreachable
	missing
)

// New returns the plugin, or what is wrong with its arguments.
func New(args Args, c *client.Client) (*Plugin, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	p := &Plugin{
		client: c, timeout: time.Duration(args.BindTimeoutSeconds) * time.Second,
		skip:      framework.NewStatus(framework.Skip, Name),
		immediate: unresolvable("pod has unbound immediate PersistentVolumeClaims"),
	}
	const none = "node(s) didn't find available persistent volumes to bind"
	const conflict = "node(s) didn't match PersistentVolume's node affinity"
	const gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	p.refused = [3][2]*framework.Status{
		reachable: {nil, unresolvable(none)}, unreachable: {unresolvable(conflict), unresolvable(conflict, none)},
		missing: {unresolvable(gone), unresolvable(none, gone)},
	}
	return p, nil
}

func unresolvable(reasons ...string) *framework.Status {
	return framework.NewStatus(framework.Unresolvable, Name, reasons...)
}

var (
	_ framework.PreFilter = (*Plugin)(nil)
	_ framework.Filter    = (*Plugin)(nil)
	_ framework.Reserve   = (*Plugin)(nil)
	_ framework.PreFlight = (*Plugin)(nil)
	_ framework.Enqueue   = (*Plugin)(nil)
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Volume works out what decisions need of a volume.
func Volume(v *corev1.PersistentVolume) *framework.VolumeInfo {
	if r := nodeselector.OfVolume(v); r != nil {
		return framework.NewVolumeInfo(v, r)
	}
	return framework.NewVolumeInfo(v, nil)
}

// Reserve plans for the node that was picked what Filter found there. The scheduler counts it as done.
func (p *Plugin) Reserve(state *framework.CycleState, _ *framework.PodInfo, node string) *framework.Status {
	w, _ := state.Read(stateKey{}).(*wanted)
	if w == nil || len(w.open) == 0 {
		return nil
	}
	n := state.Snapshot().Node(node)
	if n == nil || !w.find(n.Node) {
		return unresolvable("the volumes that were found for the pod are gone")
	}
	state.PlanVolumes(w.plan(node))
	return nil
}

// Unreserve has nothing to undo: the scheduler forgets the plan with the pod.
func (*Plugin) Unreserve(*framework.CycleState, *framework.PodInfo, string) {}

// Events are the changes that can help. A pod that goes is none of them: what its claims are bound to stays theirs.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.VolumesFreed |
		framework.ClaimChanged | framework.VolumeChanged | framework.ClassChanged
}

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	switch c.Event {
	// the classes of the pod's claims are not at hand, so that any volume may be one that they want
	case framework.VolumesFreed:
		return len(c.Freed.Bind) > 0 || slices.ContainsFunc(c.Freed.Provision, func(o *framework.ClaimInfo) bool {
			return o.Key.Namespace == pod.Key.Namespace && slices.Contains(pod.Claims, o.Key.Name)
		})
	case framework.ClaimChanged:
		k := cache.KeyOf(c.Claim)
		return k.Namespace == pod.Key.Namespace && slices.Contains(pod.Claims, k.Name)
	case framework.ClassChanged:
		return c.OldClass == nil || !slices.EqualFunc(c.OldClass.GetAllowedTopologies(), c.Class.GetAllowedTopologies(),
			func(a, b *corev1.TopologySelectorTerm) bool { return proto.Equal(a, b) })
	default: // a volume, or a node
		return true
	}
}
