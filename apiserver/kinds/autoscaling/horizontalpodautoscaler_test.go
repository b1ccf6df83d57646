package autoscaling_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/autoscaling"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/codec/value"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
)

func amount(s string) *metav1.Quantity { return &metav1.Quantity{String_: s} }

// The table has what kubectl get shows of Kubernetes' own.
func TestTable(t *testing.T) {
	created := time.Unix(1_800_000_000, 0)
	cpu := &autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
		Target: &autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: proto.Int32(80)}}}
	memory := &autoscalingv2.MetricSpec{
		Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: "memory", Container: "main",
			Target: &autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: amount("1Gi")},
		}}
	queue := &autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{
		Metric: &autoscalingv2.MetricIdentifier{Name: "queue"},
		Target: &autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: amount("3")},
	}}
	fifty := &autoscalingv2.MetricStatus{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu",
		Current: &autoscalingv2.MetricValueStatus{AverageUtilization: proto.Int32(50), AverageValue: amount("100m")}}}
	for _, tt := range []struct {
		name    string
		metrics []*autoscalingv2.MetricSpec
		now     []*autoscalingv2.MetricStatus
		want    string
	}{
		{name: "default", want: "cpu: <unknown>/80%"},
		{name: "measured", metrics: []*autoscalingv2.MetricSpec{cpu}, now: []*autoscalingv2.MetricStatus{fifty},
			want: "cpu: 50%/80%"},
		{name: "failed", metrics: []*autoscalingv2.MetricSpec{cpu}, now: []*autoscalingv2.MetricStatus{{}},
			want: "cpu: <unknown>/80%"},
		{name: "two", metrics: []*autoscalingv2.MetricSpec{cpu, memory}, now: []*autoscalingv2.MetricStatus{fifty},
			want: "cpu: 50%/80%, memory: <unknown>/1Gi"},
		{name: "three", metrics: []*autoscalingv2.MetricSpec{queue, memory, cpu},
			want: "<unknown>/3 (avg), memory: <unknown>/1Gi + 1 more..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &autoscalingv2.HorizontalPodAutoscaler{
				Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "ns", CreationTimestamp: value.Time(created)},
				Spec: &autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 10, Metrics: tt.metrics,
					ScaleTargetRef: &autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}},
				Status: &autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 3, CurrentMetrics: tt.now},
			}
			autoscaling.DefaultHorizontalPodAutoscaler(o)
			table := autoscaling.HorizontalPodAutoscaler(define.Config{}).Strategy.Table
			var names []string
			for _, c := range table.Columns() {
				names = append(names, c.Name)
			}
			if want := []string{"Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"}; !slices.Equal(
				names, want) {
				t.Errorf("columns %q, want %q", names, want)
			}
			want := []any{"web", "Deployment/web", tt.want, "1", int64(10), int64(3), "5m"}
			if got := table.Cells(o, created.Add(5*time.Minute)); !slices.Equal(got, want) {
				t.Errorf("cells %v, want %v", got, want)
			}
		})
	}
}
