package metering_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/metering"
)

var labels = metering.Labels{Verb: "LIST", Version: "v1", Resource: "pods", Scope: metering.OfCluster}

// A request counts when it ends, and is among those in flight from its seat on. The wait for the seat is in its
// duration, and not in its indicator.
func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := metering.New(registry)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the beginning of a second
		o := m.Operation(labels, false)
		first, second := o.Begin(), o.Begin()
		time.Sleep(300 * time.Millisecond)
		first.Seated()
		second.Seated()
		time.Sleep(30 * time.Millisecond)
		first.End(metering.Answer{Code: 200, Size: 5})
		second.End(metering.Answer{Code: 404, Size: -1, DryRun: true})
		refused := o.Begin()
		refused.End(metering.Answer{Code: 429, Size: -1})
		time.Sleep(time.Second)
		for want, n := range map[string]float64{
			"apiserver_current_inflight_requests mutating": 0, "apiserver_current_inflight_requests readOnly": 2,
			"apiserver_request_total 200 apiserver   pods cluster  LIST v1":    1,
			"apiserver_request_total 404 apiserver All  pods cluster  LIST v1": 1,
			"apiserver_request_total 429 apiserver   pods cluster  LIST v1":    1,
		} {
			if got, ok := values(t, registry)[want]; !ok || got != n {
				t.Errorf("%s: %v, %v; want %v", want, got, ok, n)
			}
		}
		for name, want := range map[string]float64{
			"apiserver_request_duration_seconds": 0.66, "apiserver_request_sli_duration_seconds": 0.03,
			"apiserver_response_sizes": 5,
		} {
			if got := values(t, registry)[name]; got < want*0.999 || got > want*1.001 {
				t.Errorf("%s: %v together, want %v", name, got, want)
			}
		}
	})
}

// values returns gauges, counters and the sums of histograms, the sum of a family under its name, and each series
// under the values of its labels, too.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			out[name] += v
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] += v
		}
	}
	return out
}

// Whoever counts nothing need not know, and counting allocates nothing.
func TestCost(t *testing.T) {
	m, err := metering.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var none *metering.Meter
	for _, o := range []*metering.Operation{
		none.Operation(labels, true), m.Operation(labels, false), m.Operation(labels, true),
	} {
		if n := testing.AllocsPerRun(100, func() {
			r := o.Begin()
			r.Seated()
			r.End(metering.Answer{Code: 200, Size: 1})
		}); n > 0 {
			t.Errorf("%+v: %v allocations", o, n)
		}
	}
}
