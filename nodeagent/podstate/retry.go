package podstate

import "time"

// retry keeps one kind of action to one at a time and spaces it out while it fails.
type retry struct {
	until    time.Time // not before
	busy     bool      // asked for and not answered
	failures uint8
}

// ready reports whether the action may be asked for now.
func (r *retry) ready(now time.Time) bool { return !r.busy && !now.Before(r.until) }

// done records success.
func (r *retry) done() { *r = retry{} }

// failed records failure: the action may be asked for again after base, doubled by every failure up to most.
func (r *retry) failed(now time.Time, base, most time.Duration) {
	r.busy = false
	r.until = now.Add(doubled(base, most, r.failures))
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
