package pod

import (
	"context"
	"slices"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/staticpod"

	corev1 "monoplane.dev/api/core/v1"
)

// applyStatus: writes to the status change nothing else (OBJ-5).
func applyStatus(asked, live *corev1.Pod) *corev1.Pod {
	status := &corev1.PodStatus{}
	if s := asked.GetStatus(); s != nil {
		status = object.Clone(s)
	}
	DefaultStatus(status)
	if status.QosClass == "" {
		status.QosClass = live.GetStatus().GetQosClass()
	}
	return &corev1.Pod{Spec: live.Spec, Status: status}
}

// authorizeStatus: components name the pod's uid (DEL-11), agents write about pods of their own node only, and
// of the components only a bound pod's own agent, or PodGC once the node is gone, says that it has ended (LIFE-10). A
// partition therefore never changes a phase (LIFE-11). Where a user says so, it is unconfirmed until the agent has
// stopped the pod. That terminal is final is for validation to say.
func (p *Pods) authorizeStatus(ctx context.Context, u *registry.Update, next, live *corev1.Pod) error {
	nodekey.Keep(next.Metadata, live.Metadata)
	id := auth.From(ctx)
	name := live.GetMetadata().GetName()
	node := live.GetSpec().GetNodeName()
	if id.Component() && !u.StatesUID {
		return apierrors.NewForbidden(corev1.PodKind, name, "%s must name the pod's uid in metadata.uid", id.Name)
	}
	if err := auth.OwnNode(id, node, `pods "`+name+`"`); err != nil {
		return err
	}
	if key := nodekey.Of(live.Metadata); id.Class == auth.Node && key != "" && key != id.Key {
		return apierrors.NewForbidden(corev1.PodKind, name,
			"the pod was bound to another machine that was registered as node %q", node)
	}
	if id.Class == auth.Node || !phase.Terminal(next) {
		return nil
	}
	if phase.Terminal(live) {
		if !lingering.Confirmed(live) {
			unconfirmed(next.Status)
		}
		return nil
	}
	collects := p.rights.Collects(id)
	switch {
	case collects && node != "":
		// GC-1, GC-3: only a node that is gone in this very transaction.
		guard, err := p.nodeGone(ctx, live)
		u.Guards = append(u.Guards, guard)
		return err
	case collects && live.GetMetadata().GetDeletionTimestamp() == nil:
		return apierrors.NewForbidden(corev1.PodKind, name,
			"%s may end an unbound pod only once it is being deleted", id.Name)
	case node != "" && (id.Component() || staticpod.IsMirror(live.GetMetadata())):
		return apierrors.NewForbidden(corev1.PodKind, name,
			"only the agent of node %q, or PodGC once that node is gone, may set phase %s", node, next.Status.Phase)
	case id.Component() && !collects:
		return apierrors.NewForbidden(corev1.PodKind, name, "%s may not set phase %s", id.Name, next.Status.Phase)
	case node != "":
		unconfirmed(next.Status)
		return nil
	default:
		return nil
	}
}

// unconfirmed notes that the pod's agent has not said that nothing of it runs, whatever else the conditions say.
func unconfirmed(s *corev1.PodStatus) {
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c *corev1.PodCondition) bool {
		return c.GetType() == lingering.Unconfirmed
	})
	s.Conditions = append(s.Conditions, &corev1.PodCondition{Type: lingering.Unconfirmed, Status: "True"})
}
