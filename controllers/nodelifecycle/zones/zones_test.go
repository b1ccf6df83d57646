package zones_test

import (
	"testing"
	"time"

	"monoplane.dev/controllers/nodelifecycle/zones"
)

var policy = zones.Policy{Rate: 0.1, Secondary: 0.01, Large: 50, Unhealthy: 0.55}

// spec: NODE-3
func TestStatesAndRates(t *testing.T) {
	for _, x := range []struct {
		ready, not int
		state      zones.State
		rate       float64
	}{
		{0, 0, zones.Normal, 0.1},
		{1, 0, zones.Normal, 0.1},
		{0, 1, zones.FullDisruption, 0.1},
		{1, 2, zones.Normal, 0.1}, // two are too few to say anything
		{1, 3, zones.PartialDisruption, 0},
		{9, 11, zones.PartialDisruption, 0}, // 55 %
		{10, 12, zones.Normal, 0.1},         // a little less
		{22, 28, zones.PartialDisruption, 0},
		{22, 29, zones.PartialDisruption, 0.01}, // 51 nodes
		{0, 60, zones.FullDisruption, 0.1},
	} {
		s := policy.StateOf(x.ready, x.not)
		if r := policy.RateOf(s, x.ready+x.not); s != x.state || r != x.rate {
			t.Errorf("%d ready and %d not: %s, %v a second; want %s, %v", x.ready, x.not, s, r, x.state, x.rate)
		}
	}
}

// spec: NODE-3
func TestLimiter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := zones.NewLimiter(0.1)
	take := func(after time.Duration, ok bool, wait time.Duration) {
		t.Helper()
		now = now.Add(after)
		if w, got := l.Take(now); got != ok || w != wait {
			t.Errorf("%v after: %t, wait %v; want %t, %v", after, got, w, ok, wait)
		}
	}
	take(0, true, 0)
	take(0, false, 10*time.Second)
	take(9*time.Second, false, time.Second)
	take(time.Second, true, 0)
	take(time.Hour, true, 0) // nothing is saved up
	take(0, false, 10*time.Second)
	l.SetRate(0, now)
	take(time.Hour, false, zones.Never)
	l.SetRate(0.1, now)
	take(0, false, 10*time.Second)
	take(10*time.Second, true, 0)
	l.SetRate(0.01, now)
	take(99*time.Second, false, time.Second)
	l.SetRate(0.01, now) // no change begins nothing anew
	take(time.Second, true, 0)
	now = now.Add(time.Hour)
	l.SetRate(0.1, now) // nobody had to wait
	take(0, true, 0)
}
