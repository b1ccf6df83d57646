// Package metering counts and times the requests of the API, under the names, labels and buckets of kube-apiserver.
//
// A front makes an Operation for each thing that it can be asked for, once, and calls Begin and End around each
// request: these find no labels, take no lock but a short one, and allocate nothing. Whoever answers the client
// counts: the REST front its requests, as long as they take until the answer is written, and the services those of
// gRPC and of the components in the process.
//
// Series are bounded: labels come from the descriptors of services, and from codes. Nothing that a client says becomes
// a label.
package metering

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// component is who answers, as the label says.
const component = "apiserver"

// The buckets of kube-apiserver.
var (
	slis      = []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	durations = append([]float64{0.005, 0.025}, slis...)
)

// Meter has the series. A nil Meter counts nothing, and makes operations that do not.
type Meter struct {
	requests                     *prometheus.CounterVec
	durations, indicators, sizes *prometheus.HistogramVec
	long                         *prometheus.GaugeVec
	readOnly, mutating           peak
}

// New returns a Meter that r knows; nil without r.
func New(r prometheus.Registerer) (*Meter, error) {
	if r == nil {
		return nil, nil
	}
	const subsystem = "apiserver"
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
		}, labels)
	}
	m := &Meter{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "request_total",
			Help: "[STABLE] Requests by verb, dry run, group, version, resource, scope, component and HTTP code.",
		}, []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		durations: histogram("request_duration_seconds", "[STABLE] How long requests take until they are answered.",
			durations, "verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"),
		indicators: histogram("request_sli_duration_seconds",
			"[ALPHA] How long requests take until they are answered, without the wait for a seat.",
			slis, "verb", "group", "version", "resource", "subresource", "scope", "component"),
		sizes: histogram("response_sizes", "[STABLE] Bytes of the answers to reads over REST.",
			prometheus.ExponentialBuckets(1000, 10, 7),
			"verb", "group", "version", "resource", "subresource", "scope", "component"),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "longrunning_requests",
			Help: "[STABLE] Requests that last, such as watches, and are open.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.durations, m.indicators, m.sizes, m.long,
		inflight("readOnly", &m.readOnly), inflight("mutating", &m.mutating),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func inflight(kind string, p *peak) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: "apiserver", Name: "current_inflight_requests",
		Help:        "[STABLE] The most requests at once in the last second, without those that last.",
		ConstLabels: prometheus.Labels{"request_kind": kind},
	}, func() float64 { return float64(p.last(time.Now())) })
}

// Labels say what an Operation is. Verb is as in the metrics of Kubernetes: HTTP's, or LIST, WATCH, APPLY or CONNECT.
type Labels struct{ Verb, Group, Version, Resource, Subresource, Scope string }

// Verb returns the label of a verb of the API, such as "deletecollection". What connects, such as exec or logs, is
// told by connects.
func Verb(verb string, connects bool) string {
	switch {
	case connects:
		return "CONNECT"
	case verb == "create":
		return "POST"
	case verb == "update":
		return "PUT"
	case verb == "deletecollection":
		return "DELETE"
	}
	return strings.ToUpper(verb)
}

// The scopes of requests.
const (
	OfResource  = "resource"
	OfNamespace = "namespace"
	OfCluster   = "cluster"
)

// Operation is something that can be asked for. A nil Operation counts nothing.
type Operation struct {
	meter    *Meter
	labels   Labels
	lasts    bool
	inflight *peak

	// The series are found at the first request, so that what nobody asks for has none.
	once             sync.Once
	indicator, sizes prometheus.Observer
	long             prometheus.Gauge
	runs             [2]run // for good, and dry
}

// run are the series that tell dry runs from others.
type run struct {
	once     sync.Once
	duration prometheus.Observer
	// codes are the counters of answers that are no errors.
	codes [3]atomic.Pointer[prometheus.Counter]
}

// Operation returns the operation that labels say. One that lasts is not among the requests in flight.
func (m *Meter) Operation(labels Labels, lasts bool) *Operation {
	if m == nil {
		return nil
	}
	o := &Operation{meter: m, labels: labels, lasts: lasts, inflight: &m.mutating}
	switch labels.Verb {
	case "GET", "LIST":
		o.inflight = &m.readOnly
	}
	return o
}

// Request is one that has begun. End must be called, once.
type Request struct {
	operation *Operation
	since     time.Time
	waited    time.Duration
	seated    bool
}

// Begin notes that a request has come.
func (o *Operation) Begin() Request {
	if o == nil {
		return Request{}
	}
	o.once.Do(o.find)
	return Request{operation: o, since: time.Now()}
}

func (o *Operation) find() {
	l, m := o.labels, o.meter
	list := []string{l.Verb, l.Group, l.Version, l.Resource, l.Subresource, l.Scope, component}
	o.indicator = m.indicators.WithLabelValues(list...)
	switch l.Verb {
	case "GET", "LIST":
		o.sizes = m.sizes.WithLabelValues(list...)
	}
	if o.lasts {
		o.long = m.long.WithLabelValues(list...)
	}
}

// Seated notes that the request is served from now on, and does not wait any more.
func (r *Request) Seated() {
	o := r.operation
	if o == nil {
		return
	}
	now := time.Now()
	r.seated, r.waited = true, now.Sub(r.since)
	if o.lasts {
		o.long.Inc()
	} else {
		o.inflight.add(1, now)
	}
}

// Answer is how a request was answered: the HTTP code that it has, or would have, and how many bytes were written;
// -1 where that is not known.
type Answer struct {
	Code, Size int
	DryRun     bool
}

// End notes the answer.
func (r *Request) End(a Answer) {
	o := r.operation
	if o == nil {
		return
	}
	now := time.Now()
	took := now.Sub(r.since)
	n, dry := 0, ""
	if a.DryRun {
		n, dry = 1, "All"
	}
	l, run := &o.labels, &o.runs[n]
	run.once.Do(func() {
		run.duration = o.meter.durations.WithLabelValues(l.Verb, dry, l.Group, l.Version, l.Resource, l.Subresource,
			l.Scope, component)
	})
	run.duration.Observe(took.Seconds())
	if !a.DryRun {
		o.indicator.Observe((took - r.waited).Seconds())
	}
	if o.sizes != nil && a.Size >= 0 {
		o.sizes.Observe(float64(a.Size))
	}
	o.counter(run, dry, a.Code).Inc()
	switch {
	case !r.seated:
	case o.lasts:
		o.long.Dec()
	default:
		o.inflight.add(-1, now)
	}
}

// counter returns the counter of answers with a code.
func (o *Operation) counter(run *run, dry string, code int) prometheus.Counter {
	var kept *atomic.Pointer[prometheus.Counter]
	switch code {
	case 200:
		kept = &run.codes[0]
	case 201:
		kept = &run.codes[1]
	case 101:
		kept = &run.codes[2]
	}
	if kept != nil {
		if c := kept.Load(); c != nil {
			return *c
		}
	}
	l := &o.labels
	c := o.meter.requests.WithLabelValues(l.Verb, dry, l.Group, l.Version, l.Resource, l.Subresource, l.Scope, component,
		strconv.Itoa(code))
	if kept != nil {
		kept.Store(&c)
	}
	return c
}
