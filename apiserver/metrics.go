package apiserver

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apierrors"
)

// metrics count requests. A nil *metrics counts nothing.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monoplane_apiserver_requests_total",
			Help: "Requests by verb, resource, subresource and HTTP code.",
		}, []string{"verb", "resource", "subresource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "monoplane_apiserver_request_duration_seconds",
			Help:    "Duration of requests, watches and log streams excepted.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"verb", "resource", "subresource"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// counted are the metrics of one method, once it has been called: to find them by their labels takes longer
// than to count.
type counted struct {
	ok       atomic.Pointer[prometheus.Counter]
	duration atomic.Pointer[prometheus.Observer]
}

func (m *metrics) observe(called *method, err error, took time.Duration) {
	if m == nil {
		return
	}
	a := &called.attributes
	if err == nil {
		once(&called.counted.ok, func() prometheus.Counter {
			return m.requests.WithLabelValues(a.Verb, a.Resource, a.Subresource, code(nil))
		}).Inc()
	} else {
		m.requests.WithLabelValues(a.Verb, a.Resource, a.Subresource, code(err)).Inc()
	}
	if a.Verb != "watch" && a.Verb != "listen" && a.Verb != "answer" && a.Subresource != "log" {
		once(&called.counted.duration, func() prometheus.Observer {
			return m.duration.WithLabelValues(a.Verb, a.Resource, a.Subresource)
		}).Observe(took.Seconds())
	}
}

// once returns what p holds, which find has found for the first caller. Two at once find the same.
func once[T any](p *atomic.Pointer[T], find func() T) T {
	if v := p.Load(); v != nil {
		return *v
	}
	v := find()
	p.Store(&v)
	return v
}

// code is the HTTP code that an answer has, or would have, over REST.
func code(err error) string {
	if err == nil {
		return "200"
	}
	return strconv.Itoa(int(apierrors.From(err).Status().GetCode()))
}
