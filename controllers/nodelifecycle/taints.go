package nodelifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/taints"
)

// keepTaints gives a node the taints that its state calls for and takes those away for which there is no reason any
// more. The taint that evicts pods is not among those it gives: that waits for its turn (see evict).
func (c *Controller) keepTaints(ctx context.Context, name string) (time.Duration, error) {
	n, ok := c.nodes.Get("", name)
	if !ok {
		return 0, nil
	}
	next := wanted(n, c.sparing.Load(), time.Now())
	if next == nil {
		return 0, nil
	}
	_, err := c.writeTaints(ctx, n, next)
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	return 0, err
}

// wanted returns the taints that a node should have: nil for those it has. Whoever waits for a turn to be evicted gets
// nothing; who is evicted is so for the right reason, or, sparing, not at all.
func wanted(n *corev1.Node, sparing bool, now time.Time) []*corev1.Taint {
	have, keys, evicts := n.GetSpec().GetTaints(), taints.OfState(n), ""
	if !sparing {
		evicts = evicting(n)
	}
	keep := func(t *corev1.Taint) bool {
		switch {
		case taints.ByState(t.GetKey(), t.GetEffect()):
			return slices.Contains(keys, t.GetKey())
		case t.GetEffect() == taints.NoExecute && (t.GetKey() == taints.NotReady || t.GetKey() == taints.Unreachable):
			return t.GetKey() == evicts
		default:
			return true
		}
	}
	var next []*corev1.Taint
	for _, t := range have {
		if keep(t) {
			next = append(next, t)
		}
	}
	changed := len(next) != len(have)
	for _, key := range keys {
		if taints.Find(next, key, taints.NoSchedule) == nil {
			next, changed = append(next, newTaint(key, taints.NoSchedule, now)), true
		}
	}
	if evicted(n) && evicts != "" && taints.Find(next, evicts, taints.NoExecute) == nil {
		next, changed = append(next, newTaint(evicts, taints.NoExecute, now)), true
	}
	switch {
	case !changed:
		return nil
	case next == nil:
		return []*corev1.Taint{}
	default:
		return next
	}
}

// evicting returns the key of the taint that evicts the pods of a node like this: empty for one that is ready, or of
// which nobody has said yet how it is.
func evicting(n *corev1.Node) string {
	switch condition(n, ready).GetStatus() {
	case "False":
		return taints.NotReady
	case "Unknown":
		return taints.Unreachable
	default:
		return ""
	}
}

func newTaint(key, effect string, now time.Time) *corev1.Taint {
	return &corev1.Taint{Key: key, Effect: effect, TimeAdded: value.Time(now)}
}

// writeTaints gives a node these taints, if it is still as it was when that was decided.
func (c *Controller) writeTaints(ctx context.Context, n *corev1.Node, list []*corev1.Taint) (*corev1.Node, error) {
	next := n.Shallow()
	next.Spec = n.GetSpec().Shallow()
	if next.Spec == nil {
		next.Spec = &corev1.NodeSpec{}
	}
	next.Spec.Taints = list
	name := n.GetMetadata().GetName()
	n, err := c.cfg.Client.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{
		Name: name, Object: next, FieldManager: "node-lifecycle",
	})
	if err != nil {
		return nil, fmt.Errorf("write the taints of node %q: %w", name, err)
	}
	return n, nil
}
