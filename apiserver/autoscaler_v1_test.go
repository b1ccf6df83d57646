package apiserver_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv1rpc "monoplane.dev/api/autoscaling/v1/rpc"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	autoscalingv2rpc "monoplane.dev/api/autoscaling/v2/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	v1Behavior = "autoscaling.alpha.kubernetes.io/behavior"
	v1Metrics  = "autoscaling.alpha.kubernetes.io/metrics"
)

// An autoscaler is one object in two versions: what is written in one is read in the other, and what autoscaling/v1
// has no field for is in annotations there and nowhere else. spec: WORK-1, OBJ-9
func TestAutoscalersInBothVersions(t *testing.T) {
	admin := start(t).admin()
	older, newer := admin.HorizontalPodAutoscalersV1, admin.HorizontalPodAutoscalers
	name := &metav1.GetRequest{Namespace: "default", Name: "web"}
	watch := must(older.Watch(ctx(t), &metav1.WatchRequest{Namespace: "default"}))(t)

	made := must(older.Create(ctx(t), &autoscalingv1rpc.CreateHorizontalPodAutoscalerRequest{
		Object: &autoscalingv1.HorizontalPodAutoscaler{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: &autoscalingv1.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: &autoscalingv1.CrossVersionObjectReference{
					ApiVersion: "apps/v1", Kind: "Deployment", Name: "web",
				},
				MaxReplicas: 5, TargetCPUUtilizationPercentage: proto.Int32(60),
			},
		},
	}))(t)
	if made.GetSpec().GetMinReplicas() != 1 || made.GetSpec().GetTargetCPUUtilizationPercentage() != 60 {
		t.Errorf("made %v", made)
	}
	stored := must(newer.Get(ctx(t), name))(t)
	if m := stored.GetSpec().GetMetrics(); len(m) != 1 ||
		m[0].GetResource().GetTarget().GetAverageUtilization() != 60 || len(stored.GetMetadata().GetAnnotations()) != 0 {
		t.Errorf("stored as %v", stored)
	}
	if e := must(watch.Recv())(t).GetEvents(); len(e) != 1 ||
		e[0].GetObject().GetSpec().GetTargetCPUUtilizationPercentage() != 60 {
		t.Errorf("watched %v", e)
	}

	stored = clone(stored)
	stored.Spec.Metrics = append(stored.Spec.Metrics, &autoscalingv2.MetricSpec{
		Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "memory", Target: &autoscalingv2.MetricTarget{
			Type: "AverageValue", AverageValue: &metav1.Quantity{String_: "1Gi"},
		}},
	})
	stored.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: proto.Int32(30)},
	}
	must(newer.Update(ctx(t), &autoscalingv2rpc.UpdateHorizontalPodAutoscalerRequest{Object: stored}))(t)
	seen := must(older.List(ctx(t), &metav1.ListRequest{Namespace: "default"}))(t).GetItems()[0]
	if notes := seen.GetMetadata().GetAnnotations(); notes[v1Behavior] == "" ||
		notes[v1Metrics] != `[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]` {
		t.Errorf("annotations %v", notes)
	}

	// A patch of what the older version shows leaves alone what only the newer one has a field for.
	must(older.Patch(ctx(t), &metav1.PatchRequest{
		Namespace: "default", Name: "web", PatchType: "application/strategic-merge-patch+json",
		Patch: []byte(`{"spec":{"targetCPUUtilizationPercentage":70},"metadata":{"annotations":{"mine":"x"}}}`),
	}))(t)
	stored = must(newer.Get(ctx(t), name))(t)
	if m := stored.GetSpec().GetMetrics(); len(m) != 2 || m[0].GetResource().GetName() != "memory" ||
		m[1].GetResource().GetTarget().GetAverageUtilization() != 70 ||
		stored.GetSpec().GetBehavior().GetScaleUp().GetStabilizationWindowSeconds() != 30 ||
		len(stored.GetMetadata().GetAnnotations()) != 1 {
		t.Errorf("after the patch %v", stored)
	}

	seen = clone(must(older.Get(ctx(t), name))(t))
	seen.Status.CurrentReplicas, seen.Spec.MaxReplicas = 3, 9
	seen.Status.CurrentCPUUtilizationPercentage = proto.Int32(40)
	must(older.UpdateStatus(ctx(t), &autoscalingv1rpc.UpdateHorizontalPodAutoscalerRequest{Object: seen}))(t)
	stored = must(newer.Get(ctx(t), name))(t)
	if s := stored.GetStatus(); stored.GetSpec().GetMaxReplicas() != 5 || s.GetCurrentReplicas() != 3 ||
		len(s.GetCurrentMetrics()) != 1 || s.CurrentMetrics[0].GetResource().GetCurrent().GetAverageUtilization() != 40 {
		t.Errorf("after the status was written %v", stored)
	}

	seen = clone(must(older.Get(ctx(t), name))(t))
	seen.Spec.MaxReplicas = 0
	_, err := older.Update(ctx(t), &autoscalingv1rpc.UpdateHorizontalPodAutoscalerRequest{Object: seen})
	wants(t, err, apierrors.Invalid, "spec.maxReplicas: Required value: must be set and greater than 0")
	_, err = older.List(ctx(t), &metav1.ListRequest{FieldSelector: "spec.x=y"})
	wants(t, err, apierrors.BadRequest, `"spec.x" is not a known field selector`)
	must(older.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "web"}))(t)
	_, err = older.Get(ctx(t), name)
	wants(t, err, apierrors.NotFound, `horizontalpodautoscalers.autoscaling "web" not found`)
	if left := must(newer.List(ctx(t), &metav1.ListRequest{}))(t).GetItems(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
