package pod

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/kinds/core/pod/deletion"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/precondition"
	"monoplane.dev/rules/staticpod"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// forcedWarning is what a user sees who forces the deletion of a pod that may still run (CLI-1).
const forcedWarning = "Immediate deletion does not wait for confirmation " +
	"that the running resource has been terminated. The processes of pod %s may go on running on node %s for a while, " +
	"or indefinitely if the node cannot be reached."

// remove asks the rules and does what they decide.
func (p *Pods) remove(ctx context.Context, live *corev1.Pod, opts *metav1.DeleteOptions) (registry.Removal, error) {
	id := auth.From(ctx)
	asked := deletion.Request{Grace: opts.GracePeriodSeconds, Expected: precondition.Of(opts)}
	d, err := deletion.Decide(view(live), asked, p.actor(id), p.deps.Clock.Now())
	e := evictionIn(ctx)
	if e != nil {
		e.refused = err != nil
	}
	if err != nil {
		return registry.Removal{}, refused(live, err)
	}
	r := registry.Removal{Object: live, Unchanged: true}
	if d.Outcome != deletion.Unchanged {
		r = registry.Removal{Object: marked(live, d), Gone: d.Outcome == deletion.Removed}
	}
	if e != nil {
		if err := p.evicted(ctx, e, live, &r); err != nil {
			return registry.Removal{}, err
		}
	}
	if r.Unchanged {
		return r, nil
	}
	if d.NodeGone {
		guard, err := p.nodeGone(ctx, live)
		if err != nil {
			return registry.Removal{}, err
		}
		r.Guards = append(r.Guards, guard)
	}
	if d.Forced {
		r.Done = func() { p.forced(ctx, id, live, d) }
	}
	return r, nil
}

// nodeGone sees to it that a pod's node is gone: the Node does not exist (GC-1), or, when the pod is being deleted, is
// out of service (GC-3) and as it was when that was looked at.
func (p *Pods) nodeGone(ctx context.Context, live *corev1.Pod) (store.Guard, error) {
	absent := store.Guard{Key: nodeKeyOf(live.GetSpec().GetNodeName()), Condition: store.Absent}
	if live.GetMetadata().GetDeletionTimestamp() == nil {
		return absent, nil
	}
	n, err := p.deps.Store.Get(ctx, absent.Key, "")
	if apierrors.Is(err, apierrors.NotFound) {
		return absent, nil
	}
	if err != nil {
		return absent, err
	}
	if o, ok := n.(*corev1.Node); !ok || !taints.Out(o) {
		return absent, nil
	}
	revision, err := strconv.ParseInt(n.GetMetadata().GetResourceVersion(), 10, 64)
	return store.Guard{Key: absent.Key, Condition: store.AtRevision, Revision: revision}, err
}

// forced records a forced deletion and warns who asked for it.
func (p *Pods) forced(ctx context.Context, id auth.Identity, o *corev1.Pod, d deletion.Decision) {
	m, node := o.GetMetadata(), o.GetSpec().GetNodeName()
	p.audit.ForcedDeletion(ctx, id.Name, m.GetNamespace()+"/"+m.GetName(), m.GetUid(), node)
	if d.Unconfirmed {
		warning.Add(ctx, fmt.Sprintf(forcedWarning, m.GetName(), node))
	}
}

// marked returns live with the mark that was decided. Everything but the metadata is shared.
func marked(live *corev1.Pod, d deletion.Decision) *corev1.Pod {
	m := live.GetMetadata().Shallow()
	m.DeletionTimestamp = value.Time(d.Mark.Deadline)
	m.DeletionGracePeriodSeconds = proto.Int64(d.Mark.Grace)
	if d.Begins {
		m.Generation++
	}
	return &corev1.Pod{Metadata: m, Spec: live.Spec, Status: live.Status}
}

// view is what the rules look at in a pod.
func view(o *corev1.Pod) deletion.Pod {
	m := o.GetMetadata()
	lost := condition(o, "DisruptionTarget")
	v := deletion.Pod{
		Name: m.GetName(), UID: m.GetUid(), ResourceVersion: m.GetResourceVersion(),
		Node: o.GetSpec().GetNodeName(), NodeKey: nodekey.Of(m),
		Terminal:   lingering.Confirmed(o),
		NodeLost:   lost.GetStatus() == "True" && lost.GetReason() == disruption.ByPodGC,
		Mirror:     staticpod.IsMirror(m),
		Finalizers: len(m.GetFinalizers()) > 0,
	}
	if o.GetSpec() != nil {
		v.SpecGrace = o.Spec.TerminationGracePeriodSeconds
	}
	if m.GetDeletionTimestamp() != nil {
		v.Mark = &deletion.Mark{Deadline: value.GoTime(m.DeletionTimestamp), Grace: m.GetDeletionGracePeriodSeconds()}
	}
	return v
}

func (p *Pods) actor(id auth.Identity) deletion.Actor {
	a := deletion.Actor{Name: id.Name}
	switch {
	case id.Class == auth.Admin, id.Class == auth.User, id.Class == auth.Monitoring:
		a.Role = deletion.User
	case id.Class == auth.Node:
		a.Role, a.Node, a.NodeKey = deletion.Agent, id.Node, id.Key
	case p.rights.Collects(id):
		a.Role = deletion.PodGC
	case id.Component():
		a.Role = deletion.Controller
	}
	return a
}

func refused(o *corev1.Pod, err error) error {
	var r *deletion.Refusal
	if errors.As(err, &r) && r.Conflict {
		return apierrors.NewConflict(corev1.PodKind, o.GetMetadata().GetName(), "%s", r.Message)
	}
	return apierrors.NewForbidden(corev1.PodKind, o.GetMetadata().GetName(), "%v", err)
}
