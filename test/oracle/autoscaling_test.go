package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	oa2 "monoplane.dev/api/autoscaling/v2"
	corev1 "monoplane.dev/api/core/v1"
	om "monoplane.dev/api/metrics/v1beta1"
	"monoplane.dev/controllers/podautoscaler/measure"
	"monoplane.dev/controllers/podautoscaler/pace"
)

// scaledPod is a pod in some state that matters to who scales it, with what it uses; nil for not known.
func scaledPod(r *rand.Rand, i int, now time.Time) (*v1.Pod, *metrics.PodMetrics) {
	ago := func() metav1.Time { return metav1.NewTime(now.Add(-time.Duration(r.IntN(40)) * 15 * time.Second)) }
	p := minimal()
	p.Name = fmt.Sprint("p", i)
	p.Status.Phase = v1.PodRunning
	if r.IntN(6) == 0 {
		p.Status.Phase = pick(r, []v1.PodPhase{v1.PodPending, v1.PodFailed, v1.PodSucceeded})
	}
	if r.IntN(12) == 0 {
		p.DeletionTimestamp = ptr(metav1.NewTime(now))
	}
	if r.IntN(10) > 0 {
		p.Status.StartTime = ptr(ago())
	}
	if r.IntN(10) > 0 {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, LastTransitionTime: ago(),
			Status: pick(r, []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown})}}
	}
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}
	p.Spec.InitContainers[1].Resources.Requests = amounts("cpu", "10m", "memory", "1Mi")
	p.Spec.Containers[0].Resources.Requests = amounts("cpu", fmt.Sprint(1+r.IntN(300), "m"), "memory",
		fmt.Sprint(1+r.IntN(100), "Mi"))
	switch r.IntN(60) {
	case 0:
		delete(p.Spec.Containers[0].Resources.Requests, "cpu")
	case 1, 2:
		p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts("cpu", "500m")}
	case 3:
		p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts("memory", "500Mi")}
		p.Spec.Overhead = amounts("cpu", "50m", "memory", "2Mi")
	}
	if r.IntN(8) == 0 {
		return p, nil
	}
	m := &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		Timestamp: ago(), Window: metav1.Duration{Duration: time.Duration(r.IntN(4)) * 10 * time.Second}}
	for _, name := range []string{"c", "side"} {
		use := v1.ResourceList{"cpu": *resource.NewScaledQuantity(int64(r.IntN(400_000_000)), resource.Nano),
			"memory": *resource.NewQuantity(int64(r.IntN(100<<20)), resource.BinarySI)}
		if r.IntN(40) == 0 {
			delete(use, "cpu")
		}
		if r.IntN(40) > 0 {
			m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: name, Usage: use})
		}
	}
	return p, m
}

// inBubbles is the time at which bubbles of testing/synctest begin, in one of which Kubernetes' code answers.
var inBubbles = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// useQuestion asks how many replicas there should be of pods that use so much, by a target of which one is not zero.
type useQuestion struct {
	Pods                []*v1.Pod
	Used                []metrics.PodMetrics
	Tolerance           measure.Tolerance
	Wanted, Utilization int32
	Average             int64
	Resource, Container string
}

// proposed is a number of replicas, unless something is wrong.
type proposed struct {
	measure.Proposal
	Wrong string
}

// Of the same use the same number of replicas follows. spec: WORK-1
func TestUseAsksForTheSameReplicas(t *testing.T) {
	r := random(t)
	asked, refused := 0, 0
	now := inBubbles
	for range *count {
		var pods []*v1.Pod
		var used []metrics.PodMetrics
		var mine []*corev1.Pod
		var samples []*om.PodMetrics
		for i := range r.IntN(12) {
			p, m := scaledPod(r, i, now)
			pods = append(pods, p)
			mine = append(mine, converted(t, p, &corev1.Pod{}))
			if m != nil {
				used = append(used, *m)
				samples = append(samples, converted(t, m, &om.PodMetrics{}))
			}
		}
		if len(samples) == 0 {
			continue // the caller says so
		}
		tolerance := measure.Tolerance{Down: float64(r.IntN(3)) * 0.1, Up: float64(r.IntN(3)) * 0.1}
		name := pick(r, []string{"cpu", "memory"})
		container := pick(r, []string{"", "", "c", "side", "none"})
		wanted := int32(r.IntN(12))
		seen := measure.Pods{All: mine, Samples: measure.Samples(samples, name, container), Resource: name,
			Container: container, Wanted: wanted, Now: now, Tolerance: tolerance}
		var got measure.Proposal
		var err error
		q := useQuestion{Pods: pods, Used: used, Tolerance: tolerance, Wanted: wanted, Resource: name, Container: container}
		if r.IntN(2) == 0 {
			q.Utilization = int32(1 + r.IntN(150))
			got, err = seen.Utilization(q.Utilization)
		} else {
			q.Average = int64(1 + r.IntN(400))
			if name == "memory" {
				q.Average *= 1 << 20 * 1000 // or so many replicas would be asked for that Kubernetes cannot count them
			}
			got, err = seen.Average(q.Average)
		}
		theirs := ask[proposed](t, "replicas-of-use", q)
		if said := errorText(err); said != theirs.Wrong && !askedForMany(said, theirs.Wrong) {
			t.Fatalf("%v, Kubernetes says %q", err, theirs.Wrong)
		}
		if err != nil {
			refused++
			continue
		}
		asked++
		if want := theirs.Proposal; got != want {
			t.Fatalf("%+v, Kubernetes says %+v, of %v and %v", got, want, pods, used)
		}
	}
	if *count >= 1000 && (asked < *count/10 || refused < *count/100) {
		t.Errorf("%d asked for a number, %d were refused", asked, refused)
	}
}

// askedForMany says whether both found that a request is missing, if in different pods: theirs are in no order.
func askedForMany(a, b string) bool {
	return strings.HasPrefix(a, "missing") && strings.HasPrefix(b, "missing")
}

// behavior is a valid behavior, filled in. The longest period is that of both directions: of changes in the other one
// Kubernetes may forget some that a longer period would count.
func behavior(r *rand.Rand) *autoscaling2.HorizontalPodAutoscalerBehavior {
	longest := int32(15 * (1 + r.IntN(8)))
	rules := func() *autoscaling2.HPAScalingRules {
		s := &autoscaling2.HPAScalingRules{StabilizationWindowSeconds: ptr(int32(r.IntN(10) * 30)),
			SelectPolicy: ptr(pick(r, []autoscaling2.ScalingPolicySelect{"Max", "Max", "Min", "Disabled"}))}
		for i := range 1 + r.IntN(2) {
			period := longest
			if i > 0 {
				period = 1 + int32(r.IntN(int(longest)))
			}
			s.Policies = append(s.Policies, autoscaling2.HPAScalingPolicy{PeriodSeconds: period,
				Type: pick(r, []autoscaling2.HPAScalingPolicyType{"Pods", "Percent"}), Value: int32(1 + r.IntN(120))})
		}
		return s
	}
	b := &autoscaling2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(), ScaleDown: rules()}
	if r.IntN(3) == 0 {
		b.ScaleDown.StabilizationWindowSeconds = nil
	}
	return b
}

// paced is how many replicas there are to be after a step of a history, and what is said of it.
type paced struct {
	Replicas   int32
	Conditions []autoscaling2.HorizontalPodAutoscalerCondition
}

// Random histories are paced as Kubernetes paces them. spec: WORK-1
func TestReplicasArePacedAlike(t *testing.T) {
	r := random(t)
	limited := 0
	for range 1 + *count/50 {
		now := inBubbles
		past, waits := &course{}, time.Duration(0)
		k := &autoscaling2.HorizontalPodAutoscaler{ObjectMeta: meta("h")}
		least := int32(1 + r.IntN(4))
		k.Spec.MaxReplicas = least + int32(r.IntN(40))
		if r.IntN(2) == 0 {
			k.Spec.Behavior = behavior(r)
		}
		b := converted(t, k, &oa2.HorizontalPodAutoscaler{}).GetSpec().GetBehavior()
		h := &pace.History{}
		current := least + int32(r.IntN(int(k.Spec.MaxReplicas-least)+1))
		h.Asked(current, now)
		for step := range 50 {
			proposed := int32(r.IntN(60))
			if r.IntN(2) == 0 {
				proposed = max(0, current+int32(r.IntN(9)-4))
			}
			theirs := ask[paced](t, "paced-replicas", past, k, current, proposed, least, waits)
			want := theirs.Replicas
			a := h.Decide(pace.Question{Min: least, Max: k.Spec.MaxReplicas, Current: current, Proposed: proposed,
				Behavior: b, Now: now})
			able, limit := theirs.Conditions[0], theirs.Conditions[1]
			if a.Replicas != want || a.AbleReason != able.Reason || a.AbleMessage != able.Message ||
				a.LimitReason != limit.Reason || a.LimitMessage != limit.Message || a.Limited != (limit.Status == "True") {
				t.Fatalf("step %d: %+v of %d proposed and %d there, Kubernetes says %d and %v, of %v", step, a, proposed,
					current, want, theirs.Conditions, k.Spec)
			}
			if a.Limited {
				limited++
			}
			if want != current {
				h.Changed(b, current, want, now)
			}
			current = max(want, 1)
			waits = pick(r, []time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute})
			now = now.Add(waits)
		}
	}
	if limited == 0 {
		t.Error("nothing was limited")
	}
}
