package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	podmetrics "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	oa2 "monoplane.dev/api/autoscaling/v2"
	corev1 "monoplane.dev/api/core/v1"
	om "monoplane.dev/api/metrics/v1beta1"
	"monoplane.dev/controllers/podautoscaler/measure"
	"monoplane.dev/controllers/podautoscaler/pace"
)

// usedBy is what the API of metrics says, in place of its client.
type usedBy struct {
	metricsclient.PodMetricsInterface
	list metrics.PodMetricsList
}

func (u *usedBy) PodMetricses(string) metricsclient.PodMetricsInterface { return u }

func (u *usedBy) List(context.Context, metav1.ListOptions) (*metrics.PodMetricsList, error) {
	return u.list.DeepCopy(), nil
}

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

// Of the same use the same number of replicas follows. spec: WORK-1
func TestUseAsksForTheSameReplicas(t *testing.T) {
	r := random(t)
	asked, refused := 0, 0
	synctest.Test(t, func(t *testing.T) {
		for range *count {
			now := time.Now()
			used := &usedBy{}
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			var mine []*corev1.Pod
			var samples []*om.PodMetrics
			for i := range r.IntN(12) {
				p, m := scaledPod(r, i, now)
				if err := store.Add(p); err != nil {
					t.Fatal(err)
				}
				mine = append(mine, converted(t, p, &corev1.Pod{}))
				if m != nil {
					used.list.Items = append(used.list.Items, *m)
					samples = append(samples, converted(t, m, &om.PodMetrics{}))
				}
			}
			if len(samples) == 0 {
				continue // the caller says so
			}
			calc := podautoscaler.NewReplicaCalculator(podmetrics.NewRESTMetricsClient(used, nil, nil),
				corelisters.NewPodLister(store), measure.StartUp, measure.FirstReadiness)
			tolerance := struct{ down, up float64 }{float64(r.IntN(3)) * 0.1, float64(r.IntN(3)) * 0.1}
			theirs := *(*podautoscaler.Tolerances)(unsafe.Pointer(&tolerance))
			name := pick(r, []string{"cpu", "memory"})
			container := pick(r, []string{"", "", "c", "side", "none"})
			wanted := int32(r.IntN(12))
			ask := measure.Pods{All: mine, Samples: measure.Samples(samples, name, container), Resource: name,
				Container: container, Wanted: wanted, Now: now,
				Tolerance: measure.Tolerance{Down: tolerance.down, Up: tolerance.up}}
			var want, got measure.Proposal
			var theirErr, err error
			if r.IntN(2) == 0 {
				target := int32(1 + r.IntN(150))
				want.Replicas, want.Utilization, want.Average, _, theirErr = calc.GetResourceReplicas(t.Context(), wanted,
					target, v1.ResourceName(name), theirs, "default", labels.Everything(), container)
				got, err = ask.Utilization(target)
			} else {
				target := int64(1 + r.IntN(400))
				if name == "memory" {
					target *= 1 << 20 * 1000 // or so many replicas would be asked for that Kubernetes cannot count them
				}
				want.Replicas, want.Average, _, theirErr = calc.GetRawResourceReplicas(t.Context(), wanted, target,
					v1.ResourceName(name), theirs, "default", labels.Everything(), container)
				got, err = ask.Average(target)
			}
			if (err == nil) != (theirErr == nil) || err != nil && err.Error() != theirErr.Error() &&
				!askedForMany(err, theirErr) {
				t.Fatalf("%v, Kubernetes says %v", err, theirErr)
			}
			if err != nil {
				refused++
				continue
			}
			asked++
			if got != want {
				t.Fatalf("%+v, Kubernetes says %+v, of %v and %v", got, want, store.List(), used.list)
			}
		}
	})
	if *count >= 1000 && (asked < *count/10 || refused < *count/100) {
		t.Errorf("%d asked for a number, %d were refused", asked, refused)
	}
}

// askedForMany says whether both found that a request is missing, if in different pods: theirs are in no order.
func askedForMany(a, b error) bool {
	const missing = "missing"
	return len(a.Error()) > len(missing) && len(b.Error()) > len(missing) && a.Error()[:7] == missing &&
		b.Error()[:7] == missing
}

//go:linkname paceTheirs k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).normalizeDesiredReplicas
func paceTheirs(c *podautoscaler.HorizontalController, hpa *autoscaling2.HorizontalPodAutoscaler, key string,
	current, desired, least int32) int32

//go:linkname behaveTheirs k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).normalizeDesiredReplicasWithBehaviors
func behaveTheirs(c *podautoscaler.HorizontalController, hpa *autoscaling2.HorizontalPodAutoscaler, key string,
	current, desired, least int32) int32

//go:linkname rememberChange k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).storeScaleEvent
func rememberChange(c *podautoscaler.HorizontalController, behavior *autoscaling2.HorizontalPodAutoscalerBehavior,
	key string, from, to int32)

//go:linkname rememberFirst k8s.io/kubernetes/pkg/controller/podautoscaler.(*HorizontalController).recordInitialRecommendation
func rememberFirst(c *podautoscaler.HorizontalController, current int32, key string)

// newPacer is Kubernetes' controller as far as it paces: its memory, and nothing that runs.
func newPacer() *podautoscaler.HorizontalController {
	c := &podautoscaler.HorizontalController{}
	v := reflect.ValueOf(c).Elem()
	field := func(name string) reflect.Value {
		f := v.FieldByName(name)
		return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
	}
	for _, name := range []string{"recommendations", "scaleUpEvents", "scaleDownEvents"} {
		field(name).Set(reflect.MakeMap(field(name).Type()))
	}
	field("downscaleStabilisationWindow").SetInt(int64(pace.DefaultWindow))
	return c
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

// Random histories are paced as Kubernetes paces them. spec: WORK-1
func TestReplicasArePacedAlike(t *testing.T) {
	r := random(t)
	limited := 0
	synctest.Test(t, func(t *testing.T) {
		for range 1 + *count/50 {
			c := newPacer()
			k := &autoscaling2.HorizontalPodAutoscaler{ObjectMeta: meta("h")}
			least := int32(1 + r.IntN(4))
			k.Spec.MaxReplicas = least + int32(r.IntN(40))
			if r.IntN(2) == 0 {
				k.Spec.Behavior = behavior(r)
			}
			b := converted(t, k, &oa2.HorizontalPodAutoscaler{}).GetSpec().GetBehavior()
			h := &pace.History{}
			current := least + int32(r.IntN(int(k.Spec.MaxReplicas-least)+1))
			rememberFirst(c, current, "h")
			h.Asked(current, time.Now())
			for step := range 50 {
				proposed := int32(r.IntN(60))
				if r.IntN(2) == 0 {
					proposed = max(0, current+int32(r.IntN(9)-4))
				}
				theirs := k.DeepCopy()
				var want int32
				if k.Spec.Behavior == nil {
					want = paceTheirs(c, theirs, "h", current, proposed, least)
				} else {
					want = behaveTheirs(c, theirs, "h", current, proposed, least)
				}
				a := h.Decide(pace.Question{Min: least, Max: k.Spec.MaxReplicas, Current: current, Proposed: proposed,
					Behavior: b, Now: time.Now()})
				able, limit := theirs.Status.Conditions[0], theirs.Status.Conditions[1]
				if a.Replicas != want || a.AbleReason != able.Reason || a.AbleMessage != able.Message ||
					a.LimitReason != limit.Reason || a.LimitMessage != limit.Message || a.Limited != (limit.Status == "True") {
					t.Fatalf("step %d: %+v of %d proposed and %d there, Kubernetes says %d and %v, of %v", step, a, proposed,
						current, want, theirs.Status.Conditions, k.Spec)
				}
				if a.Limited {
					limited++
				}
				if want != current {
					rememberChange(c, k.Spec.Behavior, "h", current, want)
					h.Changed(b, current, want, time.Now())
				}
				current = max(want, 1)
				time.Sleep(pick(r, []time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute}))
			}
		}
	})
	if limited == 0 {
		t.Error("nothing was limited")
	}
}
