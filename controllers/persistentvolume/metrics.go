package persistentvolume

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ operations *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{operations: prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "pv_controller", Name: "operations_total",
		Help: "Bindings, provisionings and deletions of volumes, by result.",
	}, []string{"operation", "result"})}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m.operations)
}

func (m *metrics) done(operation string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.operations.WithLabelValues(operation, result).Inc()
}
