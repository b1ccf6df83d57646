package oracle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	autoscaling1 "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	oa1 "monoplane.dev/api/autoscaling/v1"
	oa2 "monoplane.dev/api/autoscaling/v2"
	om "monoplane.dev/api/meta/v1"
	ourautoscaling "monoplane.dev/apiserver/kinds/autoscaling"
)

func metricValue(r *rand.Rand) autoscaling2.MetricValueStatus {
	t := metricTarget(r)
	return autoscaling2.MetricValueStatus{
		Value: t.Value, AverageValue: t.AverageValue, AverageUtilization: t.AverageUtilization,
	}
}

func metricStatus(r *rand.Rand) autoscaling2.MetricStatus {
	spec := metricSpec(r)
	m := autoscaling2.MetricStatus{Type: spec.Type}
	if s := spec.Resource; s != nil {
		m.Resource = &autoscaling2.ResourceMetricStatus{Name: s.Name, Current: metricValue(r)}
	}
	if s := spec.ContainerResource; s != nil {
		m.ContainerResource = &autoscaling2.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container, Current: metricValue(r),
		}
	}
	if s := spec.Pods; s != nil {
		m.Pods = &autoscaling2.PodsMetricStatus{Metric: s.Metric, Current: metricValue(r)}
	}
	if s := spec.Object; s != nil {
		m.Object = &autoscaling2.ObjectMetricStatus{
			Metric: s.Metric, Current: metricValue(r), DescribedObject: s.DescribedObject,
		}
	}
	if s := spec.External; s != nil {
		m.External = &autoscaling2.ExternalMetricStatus{Metric: s.Metric, Current: metricValue(r)}
	}
	return m
}

// autoscalerWithStatus has all that the other version has no field for.
func autoscalerWithStatus(r *rand.Rand) *autoscaling2.HorizontalPodAutoscaler {
	k := autoscaler(r)
	if r.IntN(2) == 0 {
		k.Annotations = map[string]string{"mine": "x"}
	}
	if r.IntN(4) == 0 {
		k.Annotations = map[string]string{
			"autoscaling.alpha.kubernetes.io/metrics": "old", "autoscaling.alpha.kubernetes.io/scale-up-tolerance": "1",
		}
	}
	for range r.IntN(3) {
		k.Status.CurrentMetrics = append(k.Status.CurrentMetrics, metricStatus(r))
	}
	if r.IntN(2) == 0 {
		k.Status.ObservedGeneration, k.Status.LastScaleTime = ptr(int64(3)), &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	}
	if r.IntN(2) == 0 {
		k.Status.Conditions = []autoscaling2.HorizontalPodAutoscalerCondition{{
			Type: "AbleToScale", Status: v1.ConditionTrue, Reason: "ReadyForNewScale",
			LastTransitionTime: someTime(r, time.Unix(1_700_000_000, 0)),
		}}
	}
	return k
}

// Autoscalers are shown in autoscaling/v1 as Kubernetes shows them, and what is written there means the same.
// spec: WORK-1, OBJ-9
func TestAutoscalersOfBothVersionsAreTheSame(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 10; i++ {
		k := autoscalerWithStatus(r)
		o := converted(t, k, &oa2.HorizontalPodAutoscaler{})
		ourautoscaling.DefaultHorizontalPodAutoscaler(o)
		before := proto.Clone(o)
		theirs := ask[*autoscaling1.HorizontalPodAutoscaler](t, "horizontalpodautoscalers-shown-v1", k)
		want, got := converted(t, theirs, &oa1.HorizontalPodAutoscaler{}), ourautoscaling.ToV1(o)
		if !proto.Equal(o, before) {
			t.Fatalf("the stored object was changed: %v, before %v", o, before)
		}
		notes(t, theirs.Annotations, want.Metadata.Annotations, got.Metadata.GetAnnotations())
		if !proto.Equal(got, want) {
			bad++
			t.Errorf("of %v\nKubernetes shows %v\nMonoplane       %v", k, want, got)
		}

		if r.IntN(3) == 0 {
			damage(r, theirs)
		}
		back := ask[*autoscaling2.HorizontalPodAutoscaler](t, "horizontalpodautoscalers-stored-v1", theirs)
		sent := converted(t, theirs, &oa1.HorizontalPodAutoscaler{})
		asked := proto.Clone(sent)
		stored := ourautoscaling.FromV1(sent)
		if !proto.Equal(sent, asked) {
			t.Fatalf("what was sent was changed: %v, before %v", sent, asked)
		}
		// As Kubernetes' decoder, of the new version only: what follows fills in what its defaults do not.
		all := converted(t, back, &oa2.HorizontalPodAutoscaler{})
		ourautoscaling.DefaultHorizontalPodAutoscaler(all)
		ourautoscaling.DefaultHorizontalPodAutoscaler(stored)
		for _, c := range stored.Status.Conditions {
			if c.LastTransitionTime == nil {
				c.LastTransitionTime = &om.Time{} // theirs cannot be absent; both are null in JSON
			}
		}
		if !proto.Equal(stored, all) {
			bad++
			t.Errorf("of %v\nKubernetes stores %v\nMonoplane        %v", theirs, all, stored)
		}
	}
}

// damage changes an autoscaler of autoscaling/v1 as its users may.
func damage(r *rand.Rand, k *autoscaling1.HorizontalPodAutoscaler) {
	name := "autoscaling.alpha.kubernetes.io/" + pick(r, []string{
		"metrics", "current-metrics", "conditions", "behavior", "scale-down-tolerance",
	})
	k.Annotations = map[string]string{name: pick(r, []string{
		"", "null", "[]", "{}", "[null]", "[{}]", `[{"type":"Pods","pods":{}}]`, `{"scaleUp":{"policies":[{"type":"Pods"}]}}`,
		`[{"type":"Object","object":{"targetValue":"x"}}]`, `[{"type":"Object","object":{"averageValue":"0.5"}}]`,
		`[{"type":"External","external":{"selector":{}}}]`, `{"ScaleUp":null}`, `[1]`, `["a"]`,
		`[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":"x"}}]`,
		`[{"type":"ScalingActive","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]`,
		`[{"type":"ScalingActive","lastTransitionTime":"yesterday"}]`,
	})}
	if r.IntN(2) == 0 {
		k.Spec.MinReplicas, k.Spec.TargetCPUUtilizationPercentage = nil, nil
		k.Status.CurrentCPUUtilizationPercentage = ptr(int32(7))
	}
}

// notes compares the annotations with JSON, in which Kubernetes writes empty names too, and makes theirs of what is
// the same.
func notes(t *testing.T, theirs, want, got map[string]string) {
	t.Helper()
	for name, text := range theirs {
		var a, b any
		if json.Unmarshal([]byte(text), &a) != nil || json.Unmarshal([]byte(got[name]), &b) != nil {
			continue
		}
		if a, b = filledIn(a), filledIn(b); reflect.DeepEqual(a, b) {
			want[name] = got[name]
		} else {
			t.Errorf("annotation %s: Kubernetes writes %v, Monoplane %v", name, a, b)
		}
	}
}

// filledIn leaves out what is empty.
func filledIn(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if x == nil || x == "" {
				delete(v, k)
			} else {
				v[k] = filledIn(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = filledIn(v[i])
		}
	case string:
		if q, err := resource.ParseQuantity(v); err == nil {
			return fmt.Sprint("amount ", q.String())
		}
	}
	return v
}
