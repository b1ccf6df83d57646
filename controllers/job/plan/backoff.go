package plan

import (
	"time"

	"monoplane.dev/rules/initcontainer"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The pause after a failure; it doubles with each further one from the first to the second.
const (
	MinPause = 10 * time.Second
	MaxPause = 10 * time.Minute
)

// Backoff is how often the pods of a Job have failed since one succeeded.
type Backoff struct {
	Failures int32
	// Last is when the last one failed.
	Last time.Time
}

// After returns b after further pods have ended.
func (b Backoff) After(succeeded, failed []time.Time) Backoff {
	var success time.Time
	if len(succeeded) > 0 {
		b = Backoff{}
		success = latest(succeeded)
	}
	for _, at := range failed {
		if len(succeeded) > 0 && !at.After(success) {
			continue
		}
		b.Failures++
	}
	// Not the latest of all that failed ever: pods may be told of out of order, and clocks set back.
	if last := latest(failed); len(failed) > 0 && (len(succeeded) == 0 || last.After(success)) {
		b.Last = last
	}
	return b
}

func latest(times []time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// Left returns how long no pod is to be made yet.
func (b Backoff) Left(now time.Time) time.Duration {
	if b.Failures <= 0 {
		return 0
	}
	pause := MinPause
	for i := int32(1); i < b.Failures && pause < MaxPause; i++ {
		pause = min(2*pause, MaxPause)
	}
	// A clock that was set back, here or on the node, makes nobody wait longer than the pause.
	return max(0, min(pause, pause-now.Sub(b.Last)))
}

// Ended returns when a pod ended: when its last container did, or else when it ceased to be ready, when its deletion
// was asked for, or when it was made.
func Ended(p *corev1.Pod) time.Time {
	m := p.GetMetadata()
	if t, ok := containersEnded(p); ok {
		return t
	}
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			if c.GetStatus() == "False" && isSet(c.GetLastTransitionTime()) {
				return goTime(c.GetLastTransitionTime())
			}
			break
		}
	}
	if m.GetDeletionTimestamp() != nil {
		return goTime(m.GetDeletionTimestamp()).Add(-time.Duration(m.GetDeletionGracePeriodSeconds()) * time.Second)
	}
	return goTime(m.GetCreationTimestamp())
}

// containersEnded returns when the last container ended, sidecars included; ok is false unless it is known.
func containersEnded(p *corev1.Pod) (last time.Time, ok bool) {
	look := func(list []*corev1.ContainerStatus, counts func(name string) bool) bool {
		for _, s := range list {
			if !counts(s.GetName()) {
				continue
			}
			at := s.GetState().GetTerminated().GetFinishedAt()
			if !isSet(at) {
				return false
			}
			if t := goTime(at); !ok || t.After(last) {
				last, ok = t, true
			}
		}
		return true
	}
	main := look(p.GetStatus().GetContainerStatuses(), func(string) bool { return true })
	if !main {
		last, ok = time.Time{}, false
	}
	sidecars := look(p.GetStatus().GetInitContainerStatuses(), func(name string) bool {
		for _, c := range p.GetSpec().GetInitContainers() {
			if c.GetName() == name {
				return initcontainer.IsSidecar(c)
			}
		}
		return false
	})
	return last, ok && sidecars
}

func isSet(t *metav1.Time) bool { return t.GetSeconds() != 0 || t.GetNanos() != 0 }

func goTime(t *metav1.Time) time.Time { return time.Unix(t.GetSeconds(), int64(t.GetNanos())) }
