package pace_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	"monoplane.dev/controllers/podautoscaler/pace"
)

// Without a behavior: twice as many at once, and down when five minutes have asked for less.
func TestDefault(t *testing.T) {
	h, now, current := &pace.History{}, time.Unix(1_800_000_000, 0), int32(2)
	h.Asked(current, now)
	for i, step := range []struct {
		after    time.Duration
		proposed int32
		want     int32
		reason   string
	}{
		{0, 12, 4, "ScaleUpLimit"}, {15 * time.Second, 12, 8, "ScaleUpLimit"}, {15 * time.Second, 12, 10, "TooManyReplicas"},
		{15 * time.Second, 1, 10, "TooManyReplicas"}, {285 * time.Second, 1, 10, "TooManyReplicas"},
		{time.Second, 1, 2, "TooFewReplicas"},
	} {
		now = now.Add(step.after)
		a := h.Decide(pace.Question{Min: 2, Max: 10, Current: current, Proposed: step.proposed, Now: now})
		if a.Replicas != step.want || a.LimitReason != step.reason || !a.Limited {
			t.Errorf("step %d: %+v, want %d because of %s", i, a, step.want, step.reason)
		}
		current = a.Replicas
	}
}

// What a policy allows is counted from the number before its period, and changes in the other direction count too.
func TestPolicies(t *testing.T) {
	rules := &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: proto.Int32(0), SelectPolicy: proto.String("Max"),
		Policies: []*autoscalingv2.HPAScalingPolicy{{Type: "Pods", Value: 3, PeriodSeconds: 60}},
	}
	b := &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules, ScaleDown: rules}
	h, now, current := &pace.History{}, time.Unix(1_800_000_000, 0), int32(10)
	for i, step := range []struct {
		after          time.Duration
		proposed, want int32
	}{{0, 20, 13}, {30 * time.Second, 20, 13}, {31 * time.Second, 20, 16}, {time.Second, 1, 10}, {time.Second, 1, 10}} {
		now = now.Add(step.after)
		a := h.Decide(pace.Question{Min: 1, Max: 50, Current: current, Proposed: step.proposed, Behavior: b, Now: now})
		if a.Replicas != step.want {
			t.Errorf("step %d: %+v, want %d", i, a, step.want)
		}
		if a.Replicas != current {
			h.Changed(b, current, a.Replicas, now)
		}
		current = a.Replicas
	}
}
