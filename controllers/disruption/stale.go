package disruption

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/phase"
)

// staleAfter is how long condition DisruptionTarget may stand on a pod that nobody deletes.
const staleAfter = 2 * time.Minute

// targeted says whether a pod has a condition DisruptionTarget that goes stale. An agent may take any time to end a
// pod, and the condition of a pod that has ended says why for ever.
func targeted(p *corev1.Pod) bool {
	c := podstatus.Condition(p.GetStatus(), disruption.Target)
	return c.GetStatus() == "True" && c.GetReason() != disruption.ByKubelet &&
		p.GetMetadata().GetDeletionTimestamp() == nil && !phase.Terminal(p)
}

// left returns how long the condition of a targeted pod may still stand.
func left(p *corev1.Pod, now time.Time) time.Duration {
	since := value.GoTime(podstatus.Condition(p.GetStatus(), disruption.Target).GetLastTransitionTime())
	return since.Add(staleAfter).Sub(now)
}

// takeBack makes the condition of a pod False when it is stale.
func (c *Controller) takeBack(ctx context.Context, k cache.Key) (time.Duration, error) {
	p, ok := c.pods.Get(k.Namespace, k.Name)
	if !ok || !targeted(p) {
		return 0, nil
	}
	now := time.Now()
	if wait := left(p, now); wait > 0 {
		return wait, nil
	}
	_, err := podstatus.Write(ctx, c.cfg.Client.Pods, manager, p, func(p *corev1.Pod, s *corev1.PodStatus) bool {
		if !targeted(p) || left(p, now) > 0 {
			return false
		}
		podstatus.SetCondition(s, &corev1.PodCondition{
			Type: disruption.Target, Status: "False", LastTransitionTime: value.Time(now),
			ObservedGeneration: observed(p),
		})
		return true
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	return 0, err
}

// observed is the generation that the condition tells about, on pods whose status tells of generations at all.
func observed(p *corev1.Pod) int64 {
	s := p.GetStatus()
	if s.GetObservedGeneration() == 0 && podstatus.Condition(s, disruption.Target).GetObservedGeneration() == 0 {
		return 0
	}
	return p.GetMetadata().GetGeneration()
}
