package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// metrics are those that Kubernetes' scheduler has under the same names, as far as they apply, and what became of
// bindings that conflicted.
type metrics struct {
	// ends are the ends of attempts, by profile and result.
	ends      map[string]map[string]end
	decision  prometheus.Histogram
	latency   *prometheus.HistogramVec
	tries     prometheus.Histogram
	evaluated prometheus.Counter
	conflicts *prometheus.CounterVec

	preemptions prometheus.Counter
	victims     prometheus.Histogram
}

// end counts and times the attempts that ended in one way.
type end struct {
	count prometheus.Counter
	took  prometheus.Observer
}

// The results of attempts.
const (
	isScheduled     = "scheduled"
	isUnschedulable = "unschedulable"
	hasFailed       = "error"
)

const subsystem = "scheduler"

func newMetrics(s *Scheduler) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem, Name: "schedule_attempts_total", Help: "[STABLE] Attempts to schedule a pod, by result.",
	}, []string{"result", "profile"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: subsystem, Name: "scheduling_attempt_duration_seconds",
		Help: "[STABLE] Time that attempts take, until the pod is bound.", Buckets: buckets,
	}, []string{"result", "profile"})
	m := &metrics{
		ends: make(map[string]map[string]end),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "scheduling_algorithm_duration_seconds",
			Help: "[ALPHA] Time that decisions take.", Buckets: buckets,
		}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "pod_scheduling_sli_duration_seconds",
			Help:    "[BETA] Time from when a pod was first tried to its binding, by attempts.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "pod_scheduling_attempts", Help: "[STABLE] Attempts that bound pods took.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		evaluated: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "nodes_evaluated_total", Help: "Nodes that decisions looked at.",
		}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "binding_conflicts_total",
			Help: "Bindings that met another pod or node than was judged, by result: repeated at once, or lost.",
		}, []string{"result"}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "preemption_attempts_total",
			Help: "[STABLE] Pods that room was made for by preemption.",
		}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "preemption_victims", Help: "[STABLE] Victims that a preemption chose.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
	}
	for profile := range s.profiles {
		m.ends[profile] = make(map[string]end)
		for _, result := range []string{isScheduled, isUnschedulable, hasFailed} {
			m.ends[profile][result] = end{
				attempts.WithLabelValues(result, profile), took.WithLabelValues(result, profile),
			}
		}
	}
	if s.cfg.Registerer == nil {
		return m, nil
	}
	pending := func(place string, value func() int) prometheus.Collector {
		return gauge("pending_pods", "[STABLE] Pods that wait, by queue.", prometheus.Labels{"queue": place}, value)
	}
	size := func(of string, value func() int) prometheus.Collector {
		return gauge("cache_size", "[ALPHA] Nodes, pods, and pods whose binding has not been seen yet.",
			prometheus.Labels{"type": of}, value)
	}
	q := s.queue
	for _, c := range []prometheus.Collector{
		attempts, took, m.decision, m.latency, m.tries, m.evaluated, m.conflicts, m.preemptions, m.victims,
		pending("active", func() int { n, _, _, _ := q.Len(); return n }),
		pending("backoff", func() int { _, n, _, _ := q.Len(); return n }),
		pending("unschedulable", func() int { _, _, n, _ := q.Len(); return n }),
		pending("gated", func() int { _, _, _, n := q.Len(); return n }),
		size("nodes", s.nodes.Len), size("pods", s.pods.Len), size("assumed_pods", s.state.Assumed),
	} {
		if err := s.cfg.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func gauge(name, help string, labels prometheus.Labels, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: name, Help: help, ConstLabels: labels,
	}, func() float64 { return float64(value()) })
}

// attempt counts an attempt that has ended.
func (m *metrics) attempt(t *queue.Try, result string) {
	e := m.ends[t.Pod.GetSpec().GetSchedulerName()][result]
	e.count.Inc()
	e.took.Observe(time.Since(t.Began).Seconds())
}

func (m *metrics) conflict(result string) { m.conflicts.WithLabelValues(result).Inc() }

func (m *metrics) decided(d framework.Decision, took time.Duration) {
	m.decision.Observe(took.Seconds())
	m.evaluated.Add(float64(d.Evaluated))
}

// manyAttempts is the number from which pods are not told apart by how often they were tried.
const manyAttempts = 15

// scheduled counts an attempt whose pod is bound.
func (m *metrics) scheduled(t *queue.Try) {
	m.attempt(t, isScheduled)
	m.tries.Observe(float64(t.Attempts))
	label := strconv.Itoa(manyAttempts) + "+"
	if t.Attempts < manyAttempts {
		label = strconv.Itoa(t.Attempts)
	}
	m.latency.WithLabelValues(label).Observe(time.Since(t.First).Seconds())
}
