package garbagecollector

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are named as in Kubernetes, which has the first only.
type metrics struct {
	lost    prometheus.Counter
	actions *prometheus.CounterVec
	invalid *prometheus.CounterVec
	objects prometheus.GaugeFunc
}

// What the collector does to objects, as metrics name it.
const (
	actionDelete   = "delete"
	actionUnown    = "remove_references"
	actionUnblock  = "unblock"
	actionFinalize = "finalize"
)

func newMetrics(r prometheus.Registerer, objects func() int) (*metrics, error) {
	const subsystem = "garbagecollector_controller"
	m := &metrics{
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "resources_sync_error_total",
			Help: "[ALPHA] Watches of the garbage collector that failed.",
		}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "actions_total",
			Help: "What the garbage collector did to objects, by action and result.",
		}, []string{"action", "result"}),
		invalid: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "invalid_owner_references_total",
			Help: "References to owners that can never be, as often as they were looked at, by reason.",
		}, []string{"reason"}),
		objects: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "graph_objects",
			Help: "Objects in the garbage collector's graph.",
		}, func() float64 { return float64(objects()) }),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.lost), r.Register(m.actions), r.Register(m.invalid), r.Register(m.objects))
}

func (m *metrics) done(action string, err error) error {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.actions.WithLabelValues(action, result).Inc()
	return err
}
