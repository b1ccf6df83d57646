// Package zones decides how fast pods may be evicted from nodes that are lost: when many nodes of a zone seem lost at
// once it is more likely that something between them and the control plane is, and evicting would make things worse
// (spec: NODE-3).
//
//	state of a zone      when                                           nodes evicted, of each zone
//	Normal               else                                           Rate (0.1 a second)
//	PartialDisruption    three nodes or more are not ready, and those   Secondary (0.01 a second) when the zone has more
//	                     are Unhealthy (55 %) of all or more            than Large (50) nodes, else none
//	FullDisruption       no node is ready                               Rate; none when all zones are so
//
// The package has neither clock nor client: who uses it says what time it is. It gives the answers of Kubernetes, with
// which test/oracle compares it.
package zones

import (
	"math"
	"time"
)

// State is what can be said of a zone.
type State string

// The states.
const (
	Normal            State = "Normal"
	PartialDisruption State = "PartialDisruption"
	FullDisruption    State = "FullDisruption"
)

// Policy says how fast nodes are evicted.
type Policy struct {
	// Rate is how many nodes of a zone are evicted in a second, Secondary how many in a large zone of which much is
	// disrupted.
	Rate, Secondary float64
	// Large is the number of nodes above which a zone is large.
	Large int
	// Unhealthy is the share of nodes that are not ready from which on a zone is disrupted.
	Unhealthy float64
}

// StateOf returns the state of a zone with so many nodes that are ready, and that are not.
func (p Policy) StateOf(ready, not int) State {
	switch {
	case ready == 0 && not > 0:
		return FullDisruption
	case not > 2 && float32(not)/float32(not+ready) >= float32(p.Unhealthy): // as Kubernetes counts, to the last bit
		return PartialDisruption
	default:
		return Normal
	}
}

// RateOf returns how many nodes a second are evicted in a zone of a state and size, some zone being not fully
// disrupted.
func (p Policy) RateOf(s State, size int) float64 {
	switch {
	case s != PartialDisruption:
		return p.Rate
	case size > p.Large:
		return p.Secondary
	default:
		return 0
	}
}

// Limiter lets one node at a time pass, at a rate. The first one need not wait.
type Limiter struct {
	rate float64 // a second; 0 lets none pass
	// full is from when on a node may pass.
	full time.Time
}

// NewLimiter returns a limiter that lets the first node pass at once.
func NewLimiter(rate float64) Limiter { return Limiter{rate: max(rate, 0)} }

// Take lets a node pass, or says how long none will: forever when the rate is 0.
func (l *Limiter) Take(now time.Time) (wait time.Duration, ok bool) {
	switch {
	case l.rate == 0:
		return Never, false
	case now.Before(l.full):
		return l.full.Sub(now), false
	default:
		l.full = now.Add(l.interval())
		return 0, true
	}
}

// SetRate changes the rate. A limiter at which nodes have to wait begins anew, so that changing the rate back and
// forth lets nobody pass earlier.
func (l *Limiter) SetRate(rate float64, now time.Time) {
	rate = max(rate, 0)
	if rate == l.rate {
		return
	}
	waiting := l.rate == 0 || now.Before(l.full)
	l.rate = rate
	if waiting {
		l.full = now.Add(l.interval())
	}
}

// Never is longer than anybody waits.
const Never = time.Duration(math.MaxInt64)

func (l *Limiter) interval() time.Duration {
	if d := float64(time.Second) / l.rate; d < float64(Never) {
		return time.Duration(d)
	}
	return Never
}
