package pod

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/rules/podrefs"
	"monoplane.dev/rules/staticpod"

	corev1 "monoplane.dev/api/core/v1"
)

// admitMirror sees to it that agents create nothing but mirrors of their own static pods, and that nobody else creates
// any: a mirror may go without a graceful deletion (DEL-8). A mirror belongs to the agent's Node and refers to nothing
// that the agent could read because of it (STATIC-1).
func (p *Pods) admitMirror(ctx context.Context, o *corev1.Pod) error {
	id, mirror := auth.From(ctx), staticpod.IsMirror(o.Metadata)
	refuse := func(format string, args ...any) error {
		return apierrors.NewForbidden(corev1.PodKind, o.Metadata.GetName(), format, args...)
	}
	switch {
	case id.Class != auth.Node && mirror:
		return refuse("only the agent of a node may create mirror pods (annotation %s)", staticpod.Mirror)
	case id.Class != auth.Node:
		return nil
	case !mirror || o.Spec.NodeName != id.Node:
		return refuse("%s may only create mirror pods that are bound to its own node", id.Name)
	}
	if what := podrefs.Any(o.Spec); what != "" {
		return refuse("%s may not create pods that refer to %s", id.Name, what)
	}
	node, err := p.deps.Store.Get(ctx, nodeKeyOf(id.Node), "")
	if err != nil {
		return err
	}
	if all := o.Metadata.GetOwnerReferences(); len(all) == 1 {
		owner := all[0]
		if owner.GetApiVersion() == corev1.NodeKind.APIVersion() && owner.GetKind() == corev1.NodeKind.Kind &&
			owner.GetName() == id.Node && owner.GetUid() == node.GetMetadata().GetUid() && owner.GetController() &&
			!owner.GetBlockOwnerDeletion() {
			return nil
		}
	}
	return refuse("%s may only create pods with one owner reference, to its own node, that is the controller and does "+
		"not block the owner's deletion", id.Name)
}
