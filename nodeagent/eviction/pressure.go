package eviction

import (
	"cmp"
	"slices"
	"time"
)

// Reading is what there is of something.
type Reading struct{ Available, Capacity int64 }

// Readings are by signal. What could not be read is missing, and no threshold of it is crossed.
type Readings map[Signal]Reading

// Pressure remembers which thresholds are crossed and since when. Use NewPressure.
type Pressure struct {
	thresholds []Threshold
	transition time.Duration
	// since says, for each threshold that is crossed, since when; acted which of them have led to something, and so
	// must be left by their minimum reclaim.
	since map[Threshold]time.Time
	acted map[Threshold]bool
	// last says when a condition was last true.
	last map[string]time.Time
}

// NewPressure returns a Pressure that has seen nothing.
func NewPressure(thresholds []Threshold, transition time.Duration) *Pressure {
	if transition <= 0 {
		transition = DefaultTransition
	}
	return &Pressure{
		thresholds: thresholds, transition: transition, since: map[Threshold]time.Time{}, acted: map[Threshold]bool{},
		last: map[string]time.Time{},
	}
}

// Verdict is what readings mean.
type Verdict struct {
	// Conditions are the conditions that are true, sorted.
	Conditions []string
	// Act are the thresholds for which something must be reclaimed, the most urgent first.
	Act []Threshold
}

// crossed reports whether a threshold is crossed; one that has led to something is, until its minimum reclaim is free.
func crossed(t Threshold, r Readings, reclaim bool) bool {
	got, ok := r[t.Signal]
	if !ok {
		return false
	}
	least := t.Value.Of(got.Capacity)
	if reclaim {
		least += t.Reclaim.Of(got.Capacity)
	}
	return got.Available < least
}

// Observe takes readings in.
func (p *Pressure) Observe(now time.Time, r Readings) Verdict {
	var v Verdict
	for _, t := range p.thresholds {
		if !crossed(t, r, p.acted[t]) {
			delete(p.since, t)
			delete(p.acted, t)
			continue
		}
		if _, known := p.since[t]; !known {
			p.since[t] = now
		}
		p.last[signals[t.Signal].condition] = now
		if now.Sub(p.since[t]) >= t.Grace {
			p.acted[t] = true
			v.Act = append(v.Act, t)
		}
	}
	for condition, at := range p.last {
		if now.Sub(at) < p.transition {
			v.Conditions = append(v.Conditions, condition)
		}
	}
	slices.Sort(v.Conditions)
	slices.SortStableFunc(v.Act, func(a, b Threshold) int { return cmp.Compare(urgency(a), urgency(b)) })
	return v
}

// urgency is less for what comes first: memory, and of two thresholds of one thing the hard one.
func urgency(t Threshold) int {
	n := 0
	if t.Signal.Resource() != "memory" {
		n = 2
	}
	if !t.Hard() {
		n++
	}
	return n
}

// Relieved reports whether readings, taken after something was reclaimed, cross no threshold any more, with what is to
// be free on top.
func (p *Pressure) Relieved(r Readings) bool {
	return !slices.ContainsFunc(p.thresholds, func(t Threshold) bool { return crossed(t, r, true) })
}
