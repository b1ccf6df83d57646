package nodelifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/taints"
)

// nodeLost is the reason of pods of which nobody knows what they do, because their node is lost (LIFE-7).
const nodeLost = "NodeLost"

// podItem is one pod of a lost node. It holds the uid, so that a successor is another item.
type podItem struct {
	key       cache.Key
	uid, node string
}

// markPods sees to it that the pods of a lost node are not taken for ready. Their agent, once it is back, says how
// they are.
func (c *Controller) markPods(n *corev1.Node) {
	name := n.GetMetadata().GetName()
	for _, p := range c.pods.ByIndex(controller.ByNode, name) {
		if unmarked(p) {
			c.marking.Add(podItem{key: cache.KeyOf(p), uid: p.GetMetadata().GetUid(), node: name})
		}
	}
}

// unmarked says whether the pod of a lost node does not show that yet, or not that its deletion waits for the node.
func unmarked(p *corev1.Pod) bool {
	return !phase.Terminal(p) && (!lost(p) || podstatus.Condition(p.GetStatus(), ready).GetMessage() != message(p))
}

// lost says whether the pod shows already that its node is lost.
func lost(p *corev1.Pod) bool {
	r := podstatus.Condition(p.GetStatus(), ready)
	return r.GetStatus() == "False" && r.GetReason() == nodeLost
}

// message says what is known of the pod of a lost node, and what its deletion waits for, since time alone removes
// nothing (FENCE-1).
func message(p *corev1.Pod) string {
	m := fmt.Sprintf("nothing is heard of node %s, so that nobody knows how the pod is", p.GetSpec().GetNodeName())
	if p.GetMetadata().GetDeletionTimestamp() == nil {
		return m
	}
	return m + "; its deletion waits until the node is back, or somebody who knows that nothing runs there deletes the " +
		"Node, or taints it " + taints.OutOfService
}

// markPod writes the condition of one pod, if its node is still lost. Its phase stays what it is: nobody knows it any
// better (LIFE-11).
func (c *Controller) markPod(ctx context.Context, i podItem) (time.Duration, error) {
	if n, ok := c.nodes.Get("", i.node); !ok || condition(n, ready).GetStatus() != unknown {
		return 0, nil
	}
	p, err := c.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: i.key.Namespace, Name: i.key.Name})
	if apierrors.Is(err, apierrors.NotFound) || err == nil && p.GetMetadata().GetUid() != i.uid {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pod %s of lost node %q: %w", i.key, i.node, err)
	}
	wrote, known := false, false
	p, err = podstatus.Write(ctx, c.cfg.Client.Pods, "node-lifecycle", p,
		func(now *corev1.Pod, s *corev1.PodStatus) bool {
			if wrote, known = unmarked(now), lost(now); wrote {
				podstatus.SetCondition(s, &corev1.PodCondition{
					Type: ready, Status: "False", Reason: nodeLost,
					Message:            message(now),
					LastTransitionTime: value.Time(time.Now()), ObservedGeneration: now.GetMetadata().GetGeneration(),
				})
			}
			return wrote
		})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("mark pod %s of lost node %q: %w", i.key, i.node, err)
	}
	if wrote && !known {
		c.events.Event(p, record.Warning, "NodeNotReady", "Monitoring", "Node is not ready")
	}
	return 0, nil
}
