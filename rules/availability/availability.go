// Package availability says how far a pod counts for those who keep a number of pods: whether it is active, being
// deleted, ready, and available, which is ready for long enough.
//
// It guarantees the answers of Kubernetes; test/oracle compares them. It looks at one pod and asks nobody.
package availability

import (
	"time"

	"monoplane.dev/rules/phase"

	corev1 "monoplane.dev/api/core/v1"
)

// Active says whether a pod counts as a replica: it has neither ended nor begun to be deleted. Its successor is made
// as soon as it does not (spec: WORK-1, WORK-5).
func Active(p *corev1.Pod) bool {
	return !phase.Terminal(p) && p.GetMetadata().GetDeletionTimestamp() == nil
}

// Terminating says whether a pod is being deleted and has not ended.
func Terminating(p *corev1.Pod) bool {
	return !phase.Terminal(p) && p.GetMetadata().GetDeletionTimestamp() != nil
}

// Ready says whether a pod has condition Ready.
func Ready(p *corev1.Pod) bool { return ready(p) != nil }

// ReadySince returns when a pod became ready; the zero time for one that is not, or does not say.
func ReadySince(p *corev1.Pod) time.Time {
	t := ready(p).GetLastTransitionTime()
	if t.GetSeconds() == 0 && t.GetNanos() == 0 {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), int64(t.GetNanos()))
}

// Available says whether a pod has been ready for a number of seconds.
func Available(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !Ready(p) {
		return false
	}
	since := ReadySince(p)
	return minReadySeconds == 0 || !since.IsZero() && !since.Add(seconds(minReadySeconds)).After(now)
}

// Next returns how long it takes from now until the first of some pods becomes available that is ready and not yet
// available; 0 for none.
func Next(pods []*corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	var next time.Duration
	for _, p := range pods {
		since := ReadySince(p)
		if since.IsZero() {
			continue
		}
		if left := since.Add(seconds(minReadySeconds)).Sub(now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// ready returns the condition Ready of a pod that has it; nil for others.
func ready(p *corev1.Pod) *corev1.PodCondition {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			if c.GetStatus() == "True" {
				return c
			}
			return nil
		}
	}
	return nil
}
