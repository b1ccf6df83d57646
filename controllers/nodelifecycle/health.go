package nodelifecycle

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/object/builtin"
)

// Conditions of nodes, and what they are when nobody knows.
const (
	ready   = "Ready"
	unknown = "Unknown"
)

// ofAgent are the conditions that only an agent that speaks can vouch for.
var ofAgent = [...]string{ready, "MemoryPressure", "DiskPressure", "PIDPressure"}

// confirm calls a node lost of which nothing was heard for its grace, if live reads agree. It returns the node as it
// is then.
func (c *Controller) confirm(ctx context.Context, h *health, n *corev1.Node, now time.Time) *corev1.Node {
	name := n.GetMetadata().GetName()
	live, err := c.read(ctx, h, name, now)
	if err == nil && live.GetMetadata().GetUid() == h.uid && c.silent(h, live, now) {
		was := condition(live, ready).GetStatus()
		var lost *corev1.Node
		lost, err = c.cfg.Client.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{
			Name: name, Object: lose(live, now), FieldManager: "node-lifecycle",
		})
		if err == nil {
			c.cfg.Logger.Warn("nothing is heard of a node: its agent counts as lost", "node", name,
				"silent", now.Sub(h.heard).Round(time.Second))
			if was == "True" {
				c.events.Event(lost, record.Normal, "NodeNotReady", "Monitoring",
					"Node "+name+" status is now: NodeNotReady")
			}
			return c.seen(ctx, lost)
		}
	}
	switch {
	case err == nil, ctx.Err() != nil, apierrors.Is(err, apierrors.NotFound):
	case apierrors.Is(err, apierrors.Conflict):
		c.cfg.Logger.Debug("a node that seemed lost was written meanwhile", "node", name, "error", err)
	default:
		// An API that does not answer here does not answer the agents either.
		c.cfg.Logger.Warn("a node seems lost, but the API does not say", "node", name, "error", err)
		c.monitor.blind.Store(true)
	}
	return n
}

// writeTimeout bounds how long what was written, or is written for one node, keeps the monitor from its work.
const writeTimeout = 5 * time.Second

// seen waits until a node that was written is in the cache, by which it is judged next, and returns it.
func (c *Controller) seen(ctx context.Context, n *corev1.Node) *corev1.Node {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := c.nodes.WaitFor(ctx, n.GetMetadata().GetResourceVersion()); err != nil {
		c.cfg.Logger.Debug("a node that was written is not in the cache yet", "error", err)
	}
	return n
}

// read returns a node as it is now, having heard what it and its Lease say.
func (c *Controller) read(ctx context.Context, h *health, name string, now time.Time) (*corev1.Node, error) {
	lease, err := c.cfg.Client.Leases.Get(ctx, &metav1.GetRequest{Namespace: builtin.NodeLeases, Name: name})
	switch {
	case err == nil:
		t := lease.GetSpec().GetRenewTime()
		h.hear(&h.renewed, stamp{t.GetSeconds(), t.GetNanos()}, now)
	case !apierrors.Is(err, apierrors.NotFound):
		return nil, err
	}
	n, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
	if err != nil {
		return nil, err
	}
	h.hear(&h.reported, reported(n), now)
	return n, nil
}

// lose returns a node of which nobody knows how it is.
func lose(n *corev1.Node, now time.Time) *corev1.Node {
	next := n.Shallow()
	next.Status = n.GetStatus().Clone()
	if next.Status == nil {
		next.Status = &corev1.NodeStatus{}
	}
	for _, kind := range ofAgent {
		switch c := condition(next, kind); {
		case c == nil:
			next.Status.Conditions = append(next.Status.Conditions, &corev1.NodeCondition{
				Type: kind, Status: unknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: n.GetMetadata().GetCreationTimestamp(), LastTransitionTime: value.Time(now),
			})
		case c.GetStatus() != unknown:
			c.Status, c.Reason, c.Message = unknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastTransitionTime = value.Time(now)
		}
	}
	return next
}

func condition(n *corev1.Node, kind string) *corev1.NodeCondition {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// reported is when the agent says that it last reported the status of its node.
func reported(n *corev1.Node) stamp {
	t := condition(n, ready).GetLastHeartbeatTime()
	return stamp{t.GetSeconds(), t.GetNanos()}
}
