package oracle

import (
	"slices"
	"testing"
	"time"

	"monoplane.dev/controllers/nodelifecycle/zones"
)

// zonePolicy is by which zones are judged.
var zonePolicy = zones.Policy{Rate: 0.1, Secondary: 0.01, Large: 50, Unhealthy: 0.55}

// judgedZone is the state of a zone, how many of its nodes are not ready, and how many are evicted in a second when it
// is healthy and when it is not.
type judgedZone struct {
	State            string
	Unhealthy        int
	Healthy, Reduced float32
}

// A zone with as many nodes that are ready and that are not is in the same state, and its nodes are evicted as fast.
//
// spec: NODE-3
func TestZonesAreInTheSameState(t *testing.T) {
	r := random(t)
	policy := zonePolicy
	seen := map[zones.State]int{}
	for range *count {
		ready, not := r.IntN(60), r.IntN(60)
		if r.IntN(4) == 0 {
			ready = 0
		}
		if r.IntN(4) == 0 { // about the threshold
			not = int(float64(ready) * 0.55 / 0.45)
		}
		theirs := ask[judgedZone](t, "zones", policy, ready, not)
		got := policy.StateOf(ready, not)
		if theirs.Unhealthy != not || theirs.State != string(got) {
			t.Fatalf("%d nodes are ready, %d not: %s for Kubernetes, %s for Monoplane", ready, not, theirs.State, got)
		}
		rate := theirs.Healthy
		if got == zones.PartialDisruption {
			rate = theirs.Reduced
		}
		if ours := policy.RateOf(got, ready+not); float32(ours) != rate {
			t.Fatalf("%d nodes are ready, %d not: %v a second for Kubernetes, %v for Monoplane", ready, not, rate, ours)
		}
		seen[got]++
	}
	for _, s := range []zones.State{zones.Normal, zones.PartialDisruption, zones.FullDisruption} {
		if seen[s] < *count/50 {
			t.Errorf("of %d zones %d were in state %s", *count, seen[s], s)
		}
	}
}

// turn is what happens to a row of nodes after some time.
type turn struct {
	After time.Duration
	// Rate is a new one; below zero it stays.
	Rate  float64
	Waits bool
}

// Nodes that wait for their turn get it at the same time, whatever becomes of the rate meanwhile.
//
// spec: NODE-3
func TestNodesGetTheirTurnAtTheSameTime(t *testing.T) {
	r := random(t)
	for range 1 + *count/20 {
		// Powers of two, so that rounding plays no part.
		rates := []float64{0.125, 0.5, 0.0625, 0}
		rate := pick(r, rates[:3])
		var turns []turn
		for range 200 {
			next := turn{After: time.Duration(1+r.IntN(4)) * time.Second, Rate: -1}
			if r.IntN(12) == 0 {
				next.Rate = pick(r, rates)
			}
			next.Waits = r.IntN(3) > 0
			turns = append(turns, next)
		}
		want := ask[[]time.Duration](t, "turns-of-nodes", rate, turns)
		begin := longAgo
		now := begin
		ours := zones.NewLimiter(rate)
		var got []time.Duration
		for _, next := range turns {
			now = now.Add(next.After)
			if next.Rate >= 0 {
				ours.SetRate(next.Rate, now)
			}
			if !next.Waits {
				continue
			}
			if _, ok := ours.Take(now); ok {
				got = append(got, now.Sub(begin))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("turns for Kubernetes: %v\nfor Monoplane:        %v", want, got)
		}
	}
}
