package loop

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// figures are those of a work queue, under the names that they have in Kubernetes. Each loop has its own; whoever runs
// it may take them (controller.WithRegisterer).
type figures struct {
	adds, retries prometheus.Counter
	depth         prometheus.Gauge
	waited, took  prometheus.Histogram
	unfinished    prometheus.GaugeFunc
	longest       prometheus.GaugeFunc
	// since is when each worker has begun with its key, in nanoseconds; 0 for one that waits.
	since []atomic.Int64
}

func newFigures(name string, workers int) *figures {
	const subsystem = "workqueue"
	labels := prometheus.Labels{"name": name}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: name, Help: help, ConstLabels: labels,
		})
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, ConstLabels: labels}
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: name, Help: help, ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(1e-8, 10, 10),
		})
	}
	f := &figures{
		adds:    counter("adds_total", "[BETA] Keys that were added to the work queue."),
		retries: counter("retries_total", "[BETA] Keys that came back after a delay."),
		depth:   prometheus.NewGauge(gauge("depth", "[BETA] Keys that wait in the work queue.")),
		waited:  histogram("queue_duration_seconds", "[BETA] How long keys wait in the work queue."),
		took:    histogram("work_duration_seconds", "[BETA] How long the work on a key takes."),
		since:   make([]atomic.Int64, workers),
	}
	f.unfinished = prometheus.NewGaugeFunc(gauge("unfinished_work_seconds",
		"[BETA] How long the keys that are worked on have been, together."),
		func() float64 { sum, _ := f.busy(); return sum })
	f.longest = prometheus.NewGaugeFunc(gauge("longest_running_processor_seconds",
		"[BETA] How long the key has been worked on that has been for longest."),
		func() float64 { _, longest := f.busy(); return longest })
	return f
}

// busy returns how many seconds the keys have been worked on that are worked on, together and at most.
func (f *figures) busy() (sum, longest float64) {
	now := time.Now().UnixNano()
	for i := range f.since {
		if at := f.since[i].Load(); at > 0 {
			d := time.Duration(now - at).Seconds()
			sum, longest = sum+d, max(longest, d)
		}
	}
	return sum, longest
}

// register gives the figures to r, until the function that it returns is called.
func (f *figures) register(r prometheus.Registerer) (func(), error) {
	all := []prometheus.Collector{f.adds, f.retries, f.depth, f.waited, f.took, f.unfinished, f.longest}
	var err error
	for _, c := range all {
		err = errors.Join(err, r.Register(c))
	}
	return func() {
		for _, c := range all {
			r.Unregister(c)
		}
	}, err
}

// unseen takes a figure that the loop tells by itself.
type unseen struct{}

func (unseen) Set(float64) {}

// NewDepthMetric and its like implement workqueue.MetricsProvider.
func (f *figures) NewDepthMetric(string) workqueue.GaugeMetric            { return f.depth }
func (f *figures) NewAddsMetric(string) workqueue.CounterMetric           { return f.adds }
func (f *figures) NewLatencyMetric(string) workqueue.HistogramMetric      { return f.waited }
func (f *figures) NewWorkDurationMetric(string) workqueue.HistogramMetric { return f.took }
func (f *figures) NewRetriesMetric(string) workqueue.CounterMetric        { return f.retries }
func (f *figures) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unseen{}
}
func (f *figures) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return unseen{}
}

// tickless is the real clock without tickers: the queue would wake up twice a second for figures that busy tells when
// somebody asks.
type tickless struct{ clock.RealClock }

func (tickless) NewTicker(time.Duration) clock.Ticker { return silent{} }

// silent never ticks.
type silent struct{}

func (silent) C() <-chan time.Time { return nil }
func (silent) Stop()               {}
