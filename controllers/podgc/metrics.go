package podgc

import "github.com/prometheus/client_golang/prometheus"

// reason says why a pod is removed; it is the metrics' label.
type reason string

const (
	orphaned     reason = "orphaned"
	outOfService reason = "out-of-service"
	unscheduled  reason = "unscheduled"
	terminated   reason = "terminated"
)

// metrics counts removals under the names that Kubernetes uses.
type metrics struct {
	removed, failed *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "pod_gc_collector", Name: "force_delete_pods_total",
			Help: "[ALPHA] Pods that PodGC force deleted, by reason.",
		}, []string{"namespace", "reason"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "pod_gc_collector", Name: "force_delete_pod_errors_total",
			Help: "[ALPHA] Attempts of PodGC to force delete a pod that failed, by reason.",
		}, []string{"namespace", "reason"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.removed, m.failed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
