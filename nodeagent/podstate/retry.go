package podstate

import "time"

// retry keeps one kind of action to one at a time and spaces it out while it fails. It is small: a pod has ten of
// them.
type retry struct {
	until    *time.Time // not before, nil for at once
	busy     bool       // asked for and not answered
	failures uint8
}

// waits reports whether it is too early.
func (r *retry) waits(now time.Time) bool { return r.until != nil && now.Before(*r.until) }

// ready reports whether the action may be asked for now.
func (r *retry) ready(now time.Time) bool { return !r.busy && !r.waits(now) }

// wait lets nothing happen before t.
func (r *retry) wait(t time.Time) { r.until = &t }

// done records success.
func (r *retry) done() { *r = retry{} }

// failed records failure: the action may be asked for again after base, doubled by every failure up to most.
func (r *retry) failed(now time.Time, base, most time.Duration) {
	r.busy = false
	r.wait(now.Add(doubled(base, most, r.failures)))
	if r.failures < 63 {
		r.failures++
	}
}

// doubled returns base doubled n times, at most most.
func doubled(base, most time.Duration, n uint8) time.Duration {
	d := base
	for range n {
		if d >= most {
			break
		}
		d *= 2
	}
	return min(d, most)
}
