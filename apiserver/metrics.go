package apiserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
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

func (m *metrics) observe(a auth.Attributes, err error, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(a.Verb, a.Resource, a.Subresource, code(err)).Inc()
	if a.Verb != "watch" && a.Verb != "listen" && a.Verb != "answer" && a.Subresource != "log" {
		m.duration.WithLabelValues(a.Verb, a.Resource, a.Subresource).Observe(took.Seconds())
	}
}

// code is the HTTP code that an answer has, or would have, over REST.
func code(err error) string {
	if err == nil {
		return "200"
	}
	return strconv.Itoa(int(apierrors.From(err).Status().GetCode()))
}
