package framework

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// BenchmarkNewPodInfo is what each new or changed pod costs before it is decided about.
func BenchmarkNewPodInfo(b *testing.B) {
	one := &corev1.PodSpec{Containers: []*corev1.Container{container("cpu=100m memory=128Mi")}}
	many := &corev1.PodSpec{
		Containers: []*corev1.Container{container("cpu=100m memory=128Mi"),
			container("cpu=250m memory=64Mi example.com/gpu=1")},
		InitContainers: []*corev1.Container{sidecar("cpu=50m memory=32Mi"), container("cpu=1 memory=1Gi")},
		Overhead:       list("cpu=10m memory=16Mi"),
	}
	for name, spec := range map[string]*corev1.PodSpec{"one container": one, "many": many} {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "u"}, Spec: spec}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewPodInfo(p)
			}
		})
	}
}
