package core

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/fields"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"
	"monoplane.dev/object/builtin"
	podphase "monoplane.dev/rules/phase"
	"monoplane.dev/rules/taints"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// restrictedLabels are for administrators: an agent may not give them to its node.
const restrictedLabels = "node-restriction.kubernetes.io/"

// nodes is what nodes ask of the other objects of the server: who may make, take and change one, and what goes with
// it.
type nodes struct {
	deps  registry.Deps
	audit *auth.Audit
}

// admit lets an agent register its own node, for its machine. A node that comes not ready, or cordoned, has the taints
// for that from its first moment on, before the controller that keeps them has seen it (NODE-5). Whoever is no agent
// cannot say that a node is ready: theirs has the taint until the controller has looked.
func (n nodes) admit(ctx context.Context, o *corev1.Node) error {
	id, name := auth.From(ctx), o.GetMetadata().GetName()
	keys := taints.OfState(o)
	if id.Class != auth.Node {
		keys = append(keys, taints.NotReady)
	}
	for _, key := range keys {
		if taints.Find(o.Spec.Taints, key, taints.NoSchedule) == nil {
			o.Spec.Taints = append(slices.Clip(o.Spec.Taints), &corev1.Taint{Key: key, Effect: taints.NoSchedule})
		}
	}
	if id.Class != auth.Node {
		nodekey.Set(o.Metadata, "")
		return nil
	}
	if err := auth.OwnNode(id, name, `nodes "`+name+`"`); err != nil {
		return err
	}
	if err := restricted(o.Metadata.GetLabels(), nil, name, id); err != nil {
		return err
	}
	nodekey.Set(o.Metadata, id.Key)
	return nil
}

// free refuses a machine a new node under the name of another one (NODE-7). A pod is bound to a node that is there,
// and a node becomes a machine's in turn. So when there is no node after the turn has been read, no pod can get
// another machine's key before the turn ends, and all that have one are found.
func (n nodes) free(ctx context.Context, o *corev1.Node) ([]store.Guard, error) {
	id, name := auth.From(ctx), o.GetMetadata().GetName()
	if id.Class != auth.Node {
		return nil, nil
	}
	turn, err := nodekey.Turn(ctx, n.deps.Store, name)
	if err != nil {
		return nil, err
	}
	_, absent := n.deps.Store.Get(ctx, store.Key{Kind: corev1.NodeKind, Name: name}, "")
	if absent != nil && !apierrors.Is(absent, apierrors.NotFound) {
		return nil, absent
	}
	if err := n.unclaimed(ctx, name, id.Key); err != nil {
		return nil, err
	}
	if absent == nil {
		return nil, apierrors.NewAlreadyExists(corev1.NodeKind, name)
	}
	return []store.Guard{turn}, nil
}

// authorize keeps a node with its machine, and an agent from what is for administrators. A node that an
// administrator made belongs to nobody until its first agent comes. While it is there as it was read, it is nobody
// else's, and no pod can get another machine's key.
func (n nodes) authorize(ctx context.Context, u *registry.Update, next, live *corev1.Node) error {
	id, name := auth.From(ctx), live.GetMetadata().GetName()
	nodekey.Keep(next.Metadata, live.Metadata)
	if id.Class != auth.Node {
		return nil
	}
	if err := sameMachine(id, live); err != nil {
		return err
	}
	if err := restricted(next.Metadata.GetLabels(), live.Metadata.GetLabels(), name, id); err != nil {
		return err
	}
	tainted := func(n *corev1.Node) *corev1.NodeSpec { return &corev1.NodeSpec{Taints: n.GetSpec().GetTaints()} }
	if !proto.Equal(tainted(next), tainted(live)) {
		return apierrors.NewForbidden(corev1.NodeKind, name, "%s may not change taints", id.Name)
	}
	if id.Key != "" && nodekey.Of(live.Metadata) == "" {
		turn, err := nodekey.Turn(ctx, n.deps.Store, name)
		if err != nil {
			return err
		}
		u.Guards = append(u.Guards, turn)
		if err := n.unclaimed(ctx, name, id.Key); err != nil {
			return err
		}
		nodekey.Set(next.Metadata, id.Key)
	}
	return nil
}

// sameMachine refuses an agent that is not the registered machine's.
func sameMachine(id auth.Identity, live *corev1.Node) error {
	name := live.GetMetadata().GetName()
	if err := auth.OwnNode(id, name, `nodes "`+name+`"`); err != nil {
		return err
	}
	if key := nodekey.Of(live.GetMetadata()); id.Class == auth.Node && key != "" && key != id.Key {
		return apierrors.NewForbidden(corev1.NodeKind, name,
			"the name belongs to another machine; delete the node to give it up, and wait until no pod is bound to it")
	}
	return nil
}

// unclaimed refuses a name while pods are bound to it that ran on another machine.
func (n nodes) unclaimed(ctx context.Context, name, key string) error {
	bound, err := n.bound(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range bound {
		if k := nodekey.Of(p.GetMetadata()); k != "" && k != key {
			return apierrors.NewForbidden(corev1.NodeKind, name,
				"the name belonged to another machine, and pod %s/%s is still bound to it",
				p.GetMetadata().GetNamespace(), p.GetMetadata().GetName())
		}
	}
	return nil
}

// bound returns the pods that are bound to a node.
func (n nodes) bound(ctx context.Context, name string) ([]object.Object, error) {
	list, err := n.deps.Store.List(ctx, corev1.PodKind, store.ListOptions{
		Field: fields.OneTermEqualSelector("spec.nodeName", name),
	})
	return list.Objects, err
}

// lease removes the node's Lease with the Node. A Lease that something holds, or that is not the Node's, stays. An
// agent that registers anew makes another. spec: NODE-1
func (n nodes) lease(ctx context.Context, o *corev1.Node) ([]store.Op, error) {
	key := store.Key{Kind: coordinationv1.LeaseKind, Namespace: builtin.NodeLeases, Name: o.GetMetadata().GetName()}
	l, err := n.deps.Store.Get(ctx, key, "")
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := l.GetMetadata()
	owned := slices.ContainsFunc(m.GetOwnerReferences(), func(r *metav1.OwnerReference) bool {
		return r.GetKind() == corev1.NodeKind.Kind && r.GetName() == key.Name
	})
	if !owned || len(m.GetFinalizers()) > 0 {
		return nil, nil
	}
	revision, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	return []store.Op{{Key: key, Expect: revision}}, err
}

// What people see who say of a node that what ran there does not count any more (FENCE-4).
const (
	deletedWarning = "Pods are bound to the deleted node %s. They are removed soon, without knowing whether their " +
		"processes still run."
	outOfServiceWarning = "Pods of node %s that are being deleted are removed as soon as it is not ready, without " +
		"knowing whether their processes still run."
)

// brokenGlass records that somebody has given up a node: deleted it while pods that have not ended were bound to it
// (NODE-4), or said that nothing runs there any more (GC-3). Who asked is warned. spec: FENCE-4
func (n nodes) brokenGlass(ctx context.Context, next, live *corev1.Node) {
	switch m := live.GetMetadata(); {
	case next == nil && m.GetDeletionTimestamp() != nil: // recorded when the deletion began, which something held
	case next == nil, live != nil && m.GetDeletionTimestamp() == nil && next.Metadata.GetDeletionTimestamp() != nil:
		n.deleted(ctx, m)
	case outOfService(next) && !outOfService(live):
		m := next.GetMetadata()
		n.audit.BreakGlass(ctx, auth.From(ctx).Name, "out-of-service", m.GetName(), m.GetUid())
		warning.Add(ctx, fmt.Sprintf(outOfServiceWarning, m.GetName()))
	}
}

// deleted records the deletion of a node to which pods are bound that may run, or may be: a list that fails hides
// nothing.
func (n nodes) deleted(ctx context.Context, m *metav1.ObjectMeta) {
	bound, err := n.bound(ctx, m.GetName())
	bound = slices.DeleteFunc(bound, func(o object.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && podphase.Terminal(p)
	})
	if len(bound) == 0 && err == nil {
		return
	}
	n.audit.BreakGlass(ctx, auth.From(ctx).Name, "delete-node", m.GetName(), m.GetUid())
	warning.Add(ctx, fmt.Sprintf(deletedWarning, m.GetName()))
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.GetSpec().GetTaints(), func(t *corev1.Taint) bool {
		return t.GetKey() == taints.OutOfService
	})
}

func restricted(next, live map[string]string, name string, id auth.Identity) error {
	for k, v := range next {
		if old, ok := live[k]; strings.HasPrefix(k, restrictedLabels) && (!ok || old != v) {
			return apierrors.NewForbidden(corev1.NodeKind, name, "%s may not set label %q", id.Name, k)
		}
	}
	return nil
}
