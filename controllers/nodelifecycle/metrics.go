package nodelifecycle

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of Kubernetes' controller, under its names.
type metrics struct {
	size, health, unhealthy *prometheus.GaugeVec
	evictions               *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "node_collector", Name: name, Help: help},
			[]string{"zone"})
	}
	m := &metrics{
		size:      gauge("zone_size", "[ALPHA] Number of nodes of a zone."),
		health:    gauge("zone_health", "[ALPHA] Percentage of a zone's nodes that are ready."),
		unhealthy: gauge("unhealthy_nodes_in_zone", "[ALPHA] Number of a zone's nodes that are not ready."),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "node_collector", Name: "evictions_total",
			Help: "[STABLE] Nodes whose pods were evicted because the node was lost, by zone.",
		}, []string{"zone"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.size, m.health, m.unhealthy, m.evictions} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// tell says how many nodes of a zone are ready.
func (m *metrics) tell(key string, z *zone) {
	name, size := zoneName(key), float64(z.ready+z.not)
	m.size.WithLabelValues(name).Set(size)
	m.health.WithLabelValues(name).Set(100 * float64(z.ready) / size)
	m.unhealthy.WithLabelValues(name).Set(float64(z.not))
}

// drop forgets a zone in which no node counts.
func (m *metrics) drop(key string) {
	for _, g := range []*prometheus.GaugeVec{m.size, m.health, m.unhealthy} {
		g.DeleteLabelValues(zoneName(key))
	}
}
