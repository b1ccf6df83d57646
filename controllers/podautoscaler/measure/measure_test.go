package measure_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/podautoscaler/measure"
)

var now = time.Unix(1_800_000_000, 0)

// pods are running pods that request 100 thousandths each, ready for an hour, but for those that change makes
// otherwise.
func pods(n int, change func(i int, p *corev1.Pod)) []*corev1.Pod {
	var all []*corev1.Pod
	for i := range n {
		long := value.Time(now.Add(-time.Hour))
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("p", i)},
			Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{
				Requests: map[string]*metav1.Quantity{"cpu": {String_: "100m"}},
			}}}},
			Status: &corev1.PodStatus{Phase: "Running", StartTime: long, Conditions: []*corev1.PodCondition{
				{Type: "Ready", Status: "True", LastTransitionTime: long},
			}},
		}
		if change != nil {
			change(i, p)
		}
		all = append(all, p)
	}
	return all
}

// A pod of which nothing is known, or which is not ready, counts so that a mistake costs little.
func TestUtilization(t *testing.T) {
	unready := func(i int, p *corev1.Pod) {
		if i == 0 {
			p.Status.Phase = "Pending"
		}
	}
	for _, tt := range []struct {
		name    string
		all     []*corev1.Pod
		samples []int64 // of the last pods
		want    int32
	}{
		{"as it should be", pods(4, nil), []int64{50, 50, 50, 50}, 4},
		{"within the tolerance", pods(4, nil), []int64{54, 54, 54, 54}, 4},
		{"twice as much", pods(4, nil), []int64{100, 100, 100, 100}, 8},
		{"half", pods(4, nil), []int64{25, 25, 25, 25}, 2},
		{"one is missing, of more", pods(4, nil), []int64{100, 100, 100}, 6},
		{"one is missing, of less", pods(4, nil), []int64{10, 10, 10}, 3},
		{"one is not ready, of more", pods(4, unready), []int64{100, 100, 100}, 6},
		{"one is not ready, of less", pods(4, unready), []int64{10, 10, 10}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := measure.Pods{All: tt.all, Samples: map[string]measure.Sample{}, Resource: "cpu",
				Wanted: int32(len(tt.all)), Tolerance: measure.Tolerance{Down: 0.1, Up: 0.1}, Now: now}
			for i, v := range tt.samples {
				name := tt.all[len(tt.all)-len(tt.samples)+i].GetMetadata().GetName()
				p.Samples[name] = measure.Sample{At: now, Window: 15 * time.Second, Value: v}
			}
			if got, err := p.Utilization(50); err != nil || got.Replicas != tt.want {
				t.Errorf("%+v, %v; want %d", got, err, tt.want)
			}
		})
	}
}
