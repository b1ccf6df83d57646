package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oa2 "monoplane.dev/api/autoscaling/v2"
	ourautoscaling "monoplane.dev/apiserver/kinds/autoscaling"
	"monoplane.dev/apiserver/validation"
)

// metricTarget says what something should be, mostly in a way that makes sense for use of a resource.
func metricTarget(r *rand.Rand) autoscaling2.MetricTarget {
	t := autoscaling2.MetricTarget{Type: pick(r, []autoscaling2.MetricTargetType{"Utilization", "Value", "AverageValue"})}
	if r.IntN(3) > 0 {
		t.AverageUtilization = ptr(int32(r.IntN(150)))
	}
	if r.IntN(3) == 0 {
		t.AverageValue = ptr(resource.MustParse(pick(r, []string{"100m", "0", "-1", "5Gi", "0.5", "1500u"})))
	}
	if r.IntN(4) == 0 {
		t.Value = ptr(resource.MustParse(pick(r, []string{"100m", "0", "7"})))
	}
	return t
}

func metricSpec(r *rand.Rand) autoscaling2.MetricSpec {
	m := autoscaling2.MetricSpec{Type: pick(r, []autoscaling2.MetricSourceType{
		"Resource", "ContainerResource", "Pods", "Object", "External"})}
	id := autoscaling2.MetricIdentifier{Name: pick(r, []string{"queue", "a/b", "", "%"})}
	if r.IntN(2) == 0 {
		id.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	}
	kind := m.Type
	if r.IntN(8) == 0 {
		kind = pick(r, []autoscaling2.MetricSourceType{"Resource", "Pods", "Object", ""})
	}
	switch kind {
	case "Resource":
		m.Resource = &autoscaling2.ResourceMetricSource{Name: pick(r, []v1.ResourceName{"cpu", "memory", ""}),
			Target: metricTarget(r)}
	case "ContainerResource":
		m.ContainerResource = &autoscaling2.ContainerResourceMetricSource{
			Name:      pick(r, []v1.ResourceName{"cpu", "memory", "", "x", "example.com/gpu", "a/b/c"}),
			Container: pick(r, []string{"main", "", "Main"}), Target: metricTarget(r)}
	case "Pods":
		m.Pods = &autoscaling2.PodsMetricSource{Metric: id, Target: metricTarget(r)}
	case "Object":
		m.Object = &autoscaling2.ObjectMetricSource{Metric: id, Target: metricTarget(r), DescribedObject: scaleTarget(r)}
	case "External":
		m.External = &autoscaling2.ExternalMetricSource{Metric: id, Target: metricTarget(r)}
	}
	if r.IntN(10) == 0 {
		m.External = &autoscaling2.ExternalMetricSource{Metric: id, Target: metricTarget(r)}
	}
	return m
}

func scaleTarget(r *rand.Rand) autoscaling2.CrossVersionObjectReference {
	return autoscaling2.CrossVersionObjectReference{
		Kind:       pick(r, []string{"Deployment", "Deployment", "ReplicationController", "a/b", ""}),
		Name:       pick(r, []string{"web", "web", "web", "", "..", "%"}),
		APIVersion: pick(r, []string{"apps/v1", "apps/v1", "v1", "", "a/b/c"}),
	}
}

func scalingRules(r *rand.Rand) *autoscaling2.HPAScalingRules {
	if r.IntN(4) == 0 {
		return nil
	}
	s := &autoscaling2.HPAScalingRules{}
	if r.IntN(2) == 0 {
		s.StabilizationWindowSeconds = ptr(pick(r, []int32{0, 1, 60, 3600, 3601, -1}))
	}
	if r.IntN(2) == 0 {
		s.SelectPolicy = ptr(pick(r, []autoscaling2.ScalingPolicySelect{"Max", "Min", "Disabled", "", "Other"}))
	}
	for range r.IntN(3) {
		s.Policies = append(s.Policies, autoscaling2.HPAScalingPolicy{
			Type:  pick(r, []autoscaling2.HPAScalingPolicyType{"Pods", "Percent", "", "Other"}),
			Value: int32(r.IntN(20) - 2), PeriodSeconds: pick(r, []int32{0, -1, 15, 60, 1800, 1801}),
		})
	}
	if r.IntN(3) == 0 {
		s.Tolerance = ptr(resource.MustParse(pick(r, []string{"0", "0.05", "100m", "-1", "2"})))
	}
	return s
}

func autoscaler(r *rand.Rand) *autoscaling2.HorizontalPodAutoscaler {
	m := meta("h")
	m.ResourceVersion = "1"
	k := &autoscaling2.HorizontalPodAutoscaler{ObjectMeta: m, Spec: autoscaling2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: scaleTarget(r), MinReplicas: someCount(r), MaxReplicas: int32(r.IntN(20) - 1),
	}}
	for range r.IntN(4) {
		k.Spec.Metrics = append(k.Spec.Metrics, metricSpec(r))
	}
	if r.IntN(2) == 0 {
		k.Spec.Behavior = &autoscaling2.HorizontalPodAutoscalerBehavior{ScaleUp: scalingRules(r), ScaleDown: scalingRules(r)}
	}
	k.Status.CurrentReplicas, k.Status.DesiredReplicas = int32(r.IntN(9)-1), int32(r.IntN(9)-1)
	return k
}

// spec: OBJ-3, WORK-1
func TestAutoscalersAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		k, old := autoscaler(r), autoscaler(r)
		if r.IntN(2) == 0 {
			old = k.DeepCopy()
			old.Spec.MinReplicas = ptr(int32(0))
		}
		what := []string{fmt.Sprint(k.Spec)}
		theirs := ask[verdict](t, "horizontalpodautoscalers", k, old)
		o := converted(t, k, &oa2.HorizontalPodAutoscaler{})
		before := converted(t, old, &oa2.HorizontalPodAutoscaler{})
		ourautoscaling.DefaultHorizontalPodAutoscaler(o)
		ourautoscaling.DefaultHorizontalPodAutoscaler(before)
		keep(o.Metadata, before.Metadata)
		if judged(t, what, theirs,
			ourautoscaling.ValidateHorizontalPodAutoscaler(o),
			ourautoscaling.ValidateHorizontalPodAutoscalerUpdate(o, before)) {
			bad++
		}
		if report(t, append(what, "status"),
			onlyMeta(compare(theirs.Status,
				ourFaults(ourautoscaling.ValidateHorizontalPodAutoscalerStatus(o, before))))) {
			bad++
		}
	}
}

// What is left out is filled in as Kubernetes fills it in, and shown so.
func TestAutoscalersAreFilledInAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := autoscaler(r)
		o := converted(t, k, &oa2.HorizontalPodAutoscaler{})
		ourautoscaling.DefaultHorizontalPodAutoscaler(o)
		theirs := ask[*autoscaling2.HorizontalPodAutoscaler](t, "horizontalpodautoscaler-defaults", k)
		if want := converted(t, theirs, &oa2.HorizontalPodAutoscaler{}); !validation.Equal(o.Spec, want.Spec) {
			t.Fatalf("filled in to\n%v, by Kubernetes to\n%v", o.Spec, want.Spec)
		}
	}
}
