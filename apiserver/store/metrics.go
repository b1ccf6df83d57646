package store

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/store/watchcache"
)

// metrics are the store's figures. All methods work on nil, for stores that are not measured.
type metrics struct {
	registerer  prometheus.Registerer
	collectors  []prometheus.Collector
	commits     *prometheus.HistogramVec
	races       prometheus.Counter
	compactions prometheus.Counter
}

func newMetrics(s *Store) (*metrics, error) {
	if s.cfg.Registerer == nil {
		return nil, nil
	}
	m := &metrics{
		registerer: s.cfg.Registerer,
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monoplane_store_commit_seconds", Help: "Time from a write's begin until reads see it, by result.",
			Buckets: prometheus.ExponentialBuckets(0.000_1, 2, 16),
		}, []string{"result"}),
		races: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monoplane_store_races_total", Help: "Writes that were decided again because another was faster.",
		}),
		compactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monoplane_store_compactions_total", Help: "Compactions of etcd's history.",
		}),
	}
	m.collectors = []prometheus.Collector{m.commits, m.races, m.compactions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "monoplane_store_revision", Help: "Newest revision that the caches have reached.",
	}, func() float64 { return float64(s.progress.Revision()) })}
	for _, k := range s.kinds {
		m.collectors = append(m.collectors, kindMetrics(k)...)
	}
	for i, c := range m.collectors {
		if err := m.registerer.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			m.close()
			return nil, err
		}
	}
	return m, nil
}

func kindMetrics(k *kind) []prometheus.Collector {
	labels := prometheus.Labels{"kind": k.res.Kind.Resource()}
	gauge := func(name, help string, f func(watchcache.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return f(k.cache.Stats()) })
	}
	return []prometheus.Collector{
		gauge("monoplane_store_objects", "Objects stored.", func(s watchcache.Stats) float64 { return float64(s.Objects) }),
		gauge("monoplane_store_watchers", "Open watches.", func(s watchcache.Stats) float64 { return float64(s.Watchers) }),
		gauge("monoplane_store_history_events", "Changes from which a watch may resume.",
			func(s watchcache.Stats) float64 { return float64(s.HistoryEvents) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "monoplane_store_slow_watchers_total", Help: "Watches cut off because they were too slow.",
			ConstLabels: labels,
		}, func() float64 { return float64(k.cache.Stats().CutOff) }),
	}
}

// close takes the figures off the registerer, so that the store can be opened again.
func (m *metrics) close() {
	if m == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) committed(d time.Duration, err error) {
	if m == nil {
		return
	}
	result := "ok"
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	m.commits.WithLabelValues(result).Observe(d.Seconds())
}

func (m *metrics) raced() {
	if m != nil {
		m.races.Inc()
	}
}

func (m *metrics) compacted() {
	if m != nil {
		m.compactions.Inc()
	}
}
