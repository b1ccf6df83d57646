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

// unmarked says whether the pod of a lost node does not show that yet.
func unmarked(p *corev1.Pod) bool {
	r := podstatus.Condition(p.GetStatus(), ready)
	return !phase.Terminal(p) && (r.GetStatus() != "False" || r.GetReason() != nodeLost)
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
	wrote := false
	p, err = podstatus.Write(ctx, c.cfg.Client.Pods, "node-lifecycle", p,
		func(now *corev1.Pod, s *corev1.PodStatus) bool {
			if wrote = unmarked(now); wrote {
				podstatus.SetCondition(s, &corev1.PodCondition{
					Type: ready, Status: "False", Reason: nodeLost,
					Message:            fmt.Sprintf("nothing is heard of node %s, so that nobody knows how the pod is", i.node),
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
	if wrote {
		c.events.Event(p, record.Warning, "NodeNotReady", "Monitoring", "Node is not ready")
	}
	return 0, nil
}
