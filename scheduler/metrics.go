package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
	"monoplane.dev/scheduler/internal/state"
)

// metrics are those that Kubernetes' scheduler has under the same names, as far as they apply, and what became of
// bindings that conflicted.
type metrics struct {
	attempts  *prometheus.CounterVec
	decision  prometheus.Histogram
	latency   prometheus.Histogram
	evaluated prometheus.Counter
	conflicts *prometheus.CounterVec

	preemptions prometheus.Counter
	victims     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, q *queue.Queue, s *state.State) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.000005, 4, 10)
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "scheduler", Name: "schedule_attempts_total", Help: "Attempts to schedule a pod, by result.",
		}, []string{"result"}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "scheduler", Name: "scheduling_algorithm_duration_seconds", Help: "Time that decisions take.",
			Buckets: buckets,
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "scheduler", Name: "pod_scheduling_sli_duration_seconds",
			Help:    "Time from when a pod was ready to be tried to its binding.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		evaluated: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: "scheduler", Name: "nodes_evaluated_total", Help: "Nodes that decisions looked at.",
		}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "scheduler", Name: "binding_conflicts_total",
			Help: "Bindings that met another pod or node than was judged, by result: repeated at once, or lost.",
		}, []string{"result"}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: "scheduler", Name: "preemption_attempts_total", Help: "Pods that room was made for by preemption.",
		}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "scheduler", Name: "preemption_victims", Help: "Victims that a preemption chose.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
	}
	if r == nil {
		return m, nil
	}
	gauge := func(place string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: "scheduler", Name: "pending_pods", Help: "Pods that wait, by queue.",
			ConstLabels: prometheus.Labels{"queue": place},
		}, func() float64 { return float64(value()) })
	}
	for _, c := range []prometheus.Collector{
		m.attempts, m.decision, m.latency, m.evaluated, m.conflicts, m.preemptions, m.victims,
		gauge("active", func() int { n, _, _, _ := q.Len(); return n }),
		gauge("backoff", func() int { _, n, _, _ := q.Len(); return n }),
		gauge("unschedulable", func() int { _, _, n, _ := q.Len(); return n }),
		gauge("gated", func() int { _, _, _, n := q.Len(); return n }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: "scheduler", Name: "assumed_pods", Help: "Pods whose binding has not been seen yet.",
		}, func() float64 { return float64(s.Assumed()) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) attempt(result string) { m.attempts.WithLabelValues(result).Inc() }

func (m *metrics) conflict(result string) { m.conflicts.WithLabelValues(result).Inc() }

func (m *metrics) decided(d framework.Decision, took time.Duration) {
	m.decision.Observe(took.Seconds())
	m.evaluated.Add(float64(d.Evaluated))
}

func (m *metrics) scheduled(t *queue.Try) { m.latency.Observe(time.Since(t.Since).Seconds()) }
