// Package trigger keeps for what the endpoints of services are about to change: the annotation
// endpoints.kubernetes.io/last-change-trigger-time has it, so that it can be measured how long a change takes to reach
// those who route traffic. It holds a time for each service that is waiting to be looked at, and nothing of others.
package trigger

import (
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/endpoint"
)

// Times are the times of what services wait for. All methods may be called from any goroutine.
type Times struct {
	mu      sync.Mutex
	waiting map[cache.Key]pending
}

// pending is what one service waits for.
type pending struct {
	at time.Time
	// new says that the service is: whatever its pods did before does not count.
	new bool
}

// New returns an empty Times.
func New() *Times { return &Times{waiting: map[cache.Key]pending{}} }

// Begin notes that a service is new, or is seen for the first time.
func (t *Times) Begin(k cache.Key, s *corev1.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[k] = pending{at: timeOf(s.GetMetadata().GetCreationTimestamp()), new: true}
}

// Note notes that a pod of a service has changed; what counts is when it last turned ready or not. A nil pod, one that
// is none of the service's any more, has no time.
func (t *Times) Note(k cache.Key, p *corev1.Pod) {
	var at time.Time
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			at = timeOf(c.GetLastTransitionTime())
		}
	}
	t.Return(k, at)
}

// Return notes a time again that Take returned, for a change that did not come about.
func (t *Times) Return(k cache.Key, at time.Time) {
	if at.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.waiting[k]; !ok || !p.new && at.Before(p.at) {
		t.waiting[k] = pending{at: at}
	}
}

// Take returns the earliest time that was noted since it was last called, and forgets it; the zero time for none.
func (t *Times) Take(k cache.Key) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.waiting[k]
	delete(t.waiting, k)
	return p.at
}

// Annotate writes the time of a change on what changes; the zero time takes that of an earlier change away.
func Annotate(m *metav1.ObjectMeta, at time.Time) {
	delete(m.Annotations, endpoint.TriggerTime)
	if at.IsZero() {
		return
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[endpoint.TriggerTime] = at.UTC().Format(time.RFC3339Nano)
}

func timeOf(t *metav1.Time) time.Time {
	if t.GetSeconds() == 0 {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), 0)
}
