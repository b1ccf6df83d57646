package podgc

import (
	"context"
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/taints"
)

// reconcile removes one pod if live reads confirm that it is due.
func (c *Controller) reconcile(ctx context.Context, i item) (time.Duration, error) {
	pod, err := c.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: i.key.Namespace, Name: i.key.Name})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the pod: %w", err)
	}
	if pod.GetMetadata().GetUid() != i.uid || finished(pod) {
		return 0, nil
	}
	due, err := c.confirm(ctx, pod, i.reason)
	if err != nil || !due {
		return 0, err
	}
	err = c.remove(ctx, pod, i.reason)
	switch {
	case err == nil:
		c.metrics.removed.WithLabelValues(i.key.Namespace, string(i.reason)).Inc()
		c.cfg.Logger.Info("removed a pod", "pod", i.key.String(), "uid", i.uid, "node", pod.GetSpec().GetNodeName(),
			"reason", string(i.reason))
		return 0, nil
	case apierrors.Is(err, apierrors.NotFound):
		return 0, nil // somebody else did
	case apierrors.Is(err, apierrors.Conflict):
		// The pod or its node has changed under us. The next scan sees it as it is then.
		return 0, nil
	default:
		c.metrics.failed.WithLabelValues(i.key.Namespace, string(i.reason)).Inc()
		return 0, err
	}
}

// confirm judges the reason again, on live state.
func (c *Controller) confirm(ctx context.Context, pod *corev1.Pod, r reason) (bool, error) {
	node := pod.GetSpec().GetNodeName()
	switch r {
	case unscheduled:
		return node == "" && terminating(pod), nil
	case terminated:
		return phase.Terminal(pod), nil
	case orphaned:
		if node == "" {
			return false, nil
		}
		_, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: node})
		if apierrors.Is(err, apierrors.NotFound) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the node: %w", err)
		}
		return false, nil
	case outOfService:
		if node == "" || !terminating(pod) {
			return false, nil
		}
		n, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: node})
		if apierrors.Is(err, apierrors.NotFound) {
			return false, nil // that is another reason, with a quarantine
		}
		if err != nil {
			return false, fmt.Errorf("read the node: %w", err)
		}
		return taints.Out(n), nil
	default:
		return false, nil
	}
}

// remove marks the pod Failed unless it is terminal, then force deletes it, both by uid.
func (c *Controller) remove(ctx context.Context, pod *corev1.Pod, r reason) error {
	m := pod.GetMetadata()
	_, err := podstatus.Write(ctx, c.cfg.Client.Pods, "podgc", pod, func(now *corev1.Pod, s *corev1.PodStatus) bool {
		if phase.Terminal(now) {
			return false
		}
		s.Phase = phase.Failed
		switch r {
		case orphaned:
			podstatus.SetCondition(s, disrupted(now, "PodGC: node no longer exists"))
		case outOfService:
			podstatus.SetCondition(s, disrupted(now, "PodGC: node is out of service"))
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("mark the pod failed: %w", err)
	}
	grace, uid := int64(0), m.GetUid()
	_, err = c.cfg.Client.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	if err != nil {
		return fmt.Errorf("force delete the pod: %w", err)
	}
	return nil
}

// disrupted is the condition of a pod whose node is no more.
func disrupted(pod *corev1.Pod, message string) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: disruption.Target, Status: "True", Reason: disruption.ByPodGC, Message: message,
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: pod.GetMetadata().GetGeneration(),
	}
}
