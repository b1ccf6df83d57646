package oracle

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle/scheduler"

	"monoplane.dev/controllers/nodelifecycle/zones"
)

// A zone with as many nodes that are ready and that are not is in the same state, and its nodes are evicted as fast.
//
// spec: NODE-3
func TestZonesAreInTheSameState(t *testing.T) {
	r := random(t)
	policy := zones.Policy{Rate: 0.1, Secondary: 0.01, Large: 50, Unhealthy: 0.55}
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	k, err := nodelifecycle.NewNodeLifecycleController(t.Context(), f.Coordination().V1().Leases(), f.Core().V1().Pods(),
		f.Core().V1().Nodes(), f.Apps().V1().DaemonSets(), client, 5*time.Second, time.Minute, 50*time.Second,
		float32(policy.Rate), float32(policy.Secondary), int32(policy.Large), float32(policy.Unhealthy))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[zones.State]int{}
	for range *count {
		ready, not := r.IntN(60), r.IntN(60)
		if r.IntN(4) == 0 {
			ready = 0
		}
		if r.IntN(4) == 0 { // about the threshold
			not = int(float64(ready) * 0.55 / 0.45)
		}
		var conditions []*v1.NodeCondition
		for range ready {
			conditions = append(conditions, &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue})
		}
		for range not {
			conditions = append(conditions, &v1.NodeCondition{
				Type: v1.NodeReady, Status: pick(r, []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionUnknown}),
			})
		}
		unhealthy, state := k.ComputeZoneState(conditions)
		got := policy.StateOf(ready, not)
		if unhealthy != not || string(state) != string(got) {
			t.Fatalf("%d nodes are ready, %d not: %s for Kubernetes, %s for Monoplane", ready, not, state, got)
		}
		rate := k.HealthyQPSFunc(ready + not)
		if got == zones.PartialDisruption {
			rate = k.ReducedQPSFunc(ready + not)
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

// Nodes that wait for their turn get it at the same time, whatever becomes of the rate meanwhile.
//
// spec: NODE-3
func TestNodesGetTheirTurnAtTheSameTime(t *testing.T) {
	r := random(t)
	for range 1 + *count/20 {
		synctest.Test(t, func(t *testing.T) {
			// Powers of two, so that rounding plays no part.
			rates := []float64{0.125, 0.5, 0.0625, 0}
			rate := pick(r, rates[:3])
			theirs := scheduler.NewRateLimitedTimedQueue(
				flowcontrol.NewTokenBucketRateLimiter(float32(rate), scheduler.EvictionRateLimiterBurst))
			ours := zones.NewLimiter(rate)
			begin := time.Now()
			var want, got []time.Duration
			theirs.Add("node", "uid")
			for range 200 {
				time.Sleep(time.Duration(1+r.IntN(4)) * time.Second)
				if r.IntN(12) == 0 {
					rate = pick(r, rates)
					theirs.SwapLimiter(float32(rate))
					ours.SetRate(rate, time.Now())
				}
				if r.IntN(3) == 0 {
					continue // nobody waits
				}
				once := false
				theirs.Try(klog.Background(), func(scheduler.TimedValue) (bool, time.Duration) {
					once = true
					return true, 0
				})
				if once {
					want = append(want, time.Since(begin))
					theirs.Remove("node")
					theirs.Add("node", "uid")
				}
				if _, ok := ours.Take(time.Now()); ok {
					got = append(got, time.Since(begin))
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("turns for Kubernetes: %v\nfor Monoplane:        %v", want, got)
			}
		})
	}
}
