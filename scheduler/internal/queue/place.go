package queue

import (
	"time"

	"monoplane.dev/client/cache"
)

// Place says where a pod is and what it waits for.
type Place struct {
	// State is Active, BackingOff, Unschedulable, Gated or InFlight.
	State string
	// Attempts is how often it was popped.
	Attempts int
	// LastFailure is when the last try failed, NextTry when the pod leaves its place at the latest; zero when there is no
	// such time.
	LastFailure, NextTry time.Time
	// WaitsFor are the plugins that refused the last try, of an unschedulable pod. The slice must not be changed.
	WaitsFor []string
}

var placeNames = [...]string{
	inActive: "Active", inBackoff: "BackingOff", inWaiting: "Unschedulable", inGated: "Gated", inFlight: "InFlight",
}

// Find returns the place of the pod of that uid; ok is false when it is not in the queue.
func (q *Queue) Find(key cache.Key, uid string) (p Place, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.pods[key]
	if !ok || i.UID != uid {
		return Place{}, false
	}
	p = Place{State: placeNames[i.place], Attempts: i.Attempts, LastFailure: i.failed}
	switch i.place {
	case inBackoff:
		p.NextTry = i.ready
	case inWaiting:
		p.NextTry, p.WaitsFor = i.failed.Add(q.cfg.MaxWait), i.refusedBy
	case inActive, inGated, inFlight:
	}
	return p, true
}
