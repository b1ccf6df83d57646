package services_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/network/services"
)

// BenchmarkUpdateAmong10000 changes the endpoints of one Service where there are 10 000, twice in a run. It
// also says how long it takes to make all of them at first.
func BenchmarkUpdateAmong10000(b *testing.B) {
	w := newWorld(b)
	var changes []services.Change
	for i := range 10_000 {
		s := service(fmt.Sprintf("s%d", i), "1", func(s *corev1.Service) {
			s.Spec.Ports = s.Spec.Ports[:1]
			s.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)}
		})
		changes = append(changes, change(s, ready(1, 2, 3)))
	}
	began := time.Now()
	w.apply(changes...)
	first := time.Since(began)
	for b.Loop() {
		ends := ready(1, 2, 3)[:1+b.N%2]
		s := service("s77", "1", func(s *corev1.Service) {
			s.Spec.Ports = s.Spec.Ports[:1]
			s.Spec.ClusterIPs = []string{"10.96.0.78"}
		})
		w.apply(change(s, ends), change(s, ready(3)))
		w.apply(change(s, ready(1, 2, 3)))
	}
	b.ReportMetric(first.Seconds(), "s/all")
}
