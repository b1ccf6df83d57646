//go:build kubernetes

package oracle

import (
	"context"
	"sync"
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

// theirZones is one controller for all questions.
var theirZones = sync.OnceValues(func() (*nodelifecycle.Controller, error) {
	p := zonePolicy
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	return nodelifecycle.NewNodeLifecycleController(klog.NewContext(context.Background(), klog.Logger{}),
		f.Coordination().V1().Leases(), f.Core().V1().Pods(), f.Core().V1().Nodes(), f.Apps().V1().DaemonSets(), client,
		5*time.Second, time.Minute, 50*time.Second, float32(p.Rate), float32(p.Secondary), int32(p.Large),
		float32(p.Unhealthy))
})

func theirZone(t testing.TB, policy zones.Policy, ready, not int) judgedZone {
	if policy != zonePolicy {
		t.Fatalf("the policy is %v", zonePolicy)
	}
	k, err := theirZones()
	if err != nil {
		t.Fatal(err)
	}
	var conditions []*v1.NodeCondition
	for range ready {
		conditions = append(conditions, &v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue})
	}
	for i := range not {
		status := []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionUnknown}[i%2]
		conditions = append(conditions, &v1.NodeCondition{Type: v1.NodeReady, Status: status})
	}
	unhealthy, state := k.ComputeZoneState(conditions)
	return judgedZone{State: string(state), Unhealthy: unhealthy, Healthy: k.HealthyQPSFunc(ready + not),
		Reduced: k.ReducedQPSFunc(ready + not)}
}

func theirTurns(t testing.TB, rate float64, turns []turn) (out []time.Duration) {
	synctest.Test(t.(*testing.T), func(*testing.T) {
		queue := scheduler.NewRateLimitedTimedQueue(
			flowcontrol.NewTokenBucketRateLimiter(float32(rate), scheduler.EvictionRateLimiterBurst))
		begin := time.Now()
		queue.Add("node", "uid")
		for _, next := range turns {
			time.Sleep(next.After)
			if next.Rate >= 0 {
				queue.SwapLimiter(float32(next.Rate))
			}
			if !next.Waits {
				continue // nobody waits
			}
			once := false
			queue.Try(klog.Background(), func(scheduler.TimedValue) (bool, time.Duration) {
				once = true
				return true, 0
			})
			if once {
				out = append(out, time.Since(begin))
				queue.Remove("node")
				queue.Add("node", "uid")
			}
		}
	})
	return out
}
