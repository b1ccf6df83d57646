// Package plan decides which pods somebody who keeps a number of equal pods makes and deletes, and says how many there
// are. It is pure: no clock, no client. test/oracle compares it with Kubernetes' own.
package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/podrank"
)

// Burst is the most pods that are made or deleted at a time.
const Burst = 500

// Wanted is what somebody wants.
type Wanted struct {
	// Replicas is how many pods.
	Replicas int
	// MinReadySeconds is how long they are to be ready before they count as available.
	MinReadySeconds int32
	// Labels are those of the template.
	Labels map[string]string
}

// Sort splits pods into those that count as replicas and those that are being deleted. What has ended is neither.
func Sort(pods []*corev1.Pod) (active, terminating []*corev1.Pod) {
	active = make([]*corev1.Pod, 0, len(pods))
	for _, p := range pods {
		switch {
		case availability.Active(p):
			active = append(active, p)
		case availability.Terminating(p):
			terminating = append(terminating, p)
		}
	}
	return active, terminating
}

// Decide returns how many pods are to be made, or which are to be deleted, of those that count as replicas. Related
// returns the pods whose neighbours on a node count; it is asked only when it matters.
func Decide(w Wanted, active []*corev1.Pod, related func() []*corev1.Pod, now time.Time) (
	create int, remove []*corev1.Pod,
) {
	diff := len(active) - w.Replicas
	if diff <= 0 {
		return min(-diff, Burst), nil
	}
	diff = min(diff, Burst)
	if diff == len(active) {
		return 0, active
	}
	sorted := append([]*corev1.Pod(nil), active...)
	podrank.Sort(sorted, related(), now)
	return 0, sorted[:diff]
}

// Counts says how many pods there are.
type Counts struct {
	Replicas, FullyLabeled, Ready, Available, Terminating int32
}

// Count counts pods.
func Count(w Wanted, active, terminating []*corev1.Pod, now time.Time) Counts {
	c := Counts{Replicas: int32(len(active)), Terminating: int32(len(terminating))} //nolint:gosec // fewer than 2^31
	template := labels.SelectorFromSet(w.Labels)
	for _, p := range active {
		if template.Matches(labels.Set(p.GetMetadata().GetLabels())) {
			c.FullyLabeled++
		}
		if availability.Ready(p) {
			c.Ready++
			if availability.Available(p, w.MinReadySeconds, now) {
				c.Available++
			}
		}
	}
	return c
}
