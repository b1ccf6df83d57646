package store

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/store/watchcache"
)

// metrics are the store's figures. All methods work on nil, for stores that are not measured.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector
	commits    *prometheus.HistogramVec
	// What etcd is asked for, by operation, group and resource.
	requests, errors *prometheus.CounterVec
	took             *prometheus.HistogramVec
	races            prometheus.Counter
	compactions      prometheus.Counter
}

func newMetrics(s *Store) (*metrics, error) {
	if s.cfg.Registerer == nil {
		return nil, nil
	}
	of := []string{"operation", "group", "resource"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "etcd", Name: name, Help: help}, of)
	}
	m := &metrics{
		registerer: s.cfg.Registerer,
		requests:   counter("requests_total", "[ALPHA] Transactions sent to etcd, by operation, group and resource."),
		errors:     counter("request_errors_total", "[ALPHA] Transactions that etcd did not carry out."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "etcd", Name: "request_duration_seconds",
			Help: "[ALPHA] How long transactions take in etcd, by operation, group and resource.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30,
				45, 60},
		}, of),
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
	m.collectors = []prometheus.Collector{
		m.commits, m.requests, m.errors, m.took, m.races, m.compactions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "monoplane_store_revision", Help: "Newest revision that the caches have reached.",
		}, func() float64 { return float64(s.progress.Revision()) }),
	}
	if sized, ok := s.client.(interface{ Size() (total, used int64) }); ok { // Other clusters tell it themselves.
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_storage_size_bytes", Help: "[STABLE] Bytes of the file of the database.",
			ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"},
		}, func() float64 { total, _ := sized.Size(); return float64(total) }))
	}
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
	own := prometheus.Labels{"kind": k.res.Kind.Resource()}
	named := prometheus.Labels{"resource": k.res.Kind.Resource()}
	split := prometheus.Labels{"group": k.res.Kind.Group, "resource": k.res.Kind.Plural}
	gauge := func(name, help string, labels prometheus.Labels, f func(watchcache.Stats) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(f(k.cache.Stats())) })
	}
	counter := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: split}, f)
	}
	objects := func(s watchcache.Stats) int { return s.Objects }
	return []prometheus.Collector{
		gauge("apiserver_resource_objects", "[ALPHA] Objects stored, by group and resource.", split, objects),
		gauge("apiserver_storage_objects", "[STABLE] Objects stored, by resource; apiserver_resource_objects has its group.",
			named, objects),
		gauge("monoplane_store_watchers", "Open watches.", own, func(s watchcache.Stats) int { return s.Watchers }),
		gauge("monoplane_store_history_events", "Changes from which a watch may resume.", own,
			func(s watchcache.Stats) int { return s.HistoryEvents }),
		counter("apiserver_storage_events_received_total", "[BETA] Events that etcd has sent.",
			func() float64 { return float64(k.received.Load()) }),
		counter("apiserver_terminated_watchers_total", "[ALPHA] Watches cut off because they were too slow.",
			func() float64 { return float64(k.cache.Stats().CutOff) }),
	}
}

// The operations of transactions, as metrics name them.
const (
	creates = iota
	updates
	deletes
)

var operations = [...]string{creates: "create", updates: "update", deletes: "delete"}

// etcdRequests are the series of one operation on a kind. They are found at the first one.
type etcdRequests struct {
	once          sync.Once
	total, failed prometheus.Counter
	took          prometheus.Observer
}

// asked counts a transaction, as one on the object that it writes first.
func (m *metrics) asked(a *attempt, took time.Duration, err error) {
	if m == nil || len(a.steps) == 0 {
		return
	}
	st := &a.steps[0]
	op := updates
	switch {
	case st.op.Object == nil:
		op = deletes
	case st.op.Expect == 0:
		op = creates
	}
	r := &st.kind.requests[op]
	r.once.Do(func() {
		labels := []string{operations[op], st.kind.res.Kind.Group, st.kind.res.Kind.Plural}
		r.total, r.failed = m.requests.WithLabelValues(labels...), m.errors.WithLabelValues(labels...)
		r.took = m.took.WithLabelValues(labels...)
	})
	r.total.Inc()
	r.took.Observe(took.Seconds())
	if err != nil {
		r.failed.Inc()
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
