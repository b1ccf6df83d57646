//go:build kubernetes

package oracle

import (
	"bytes"
	"context"
	"testing"

	"github.com/prometheus/common/expfmt"
	"k8s.io/component-base/metrics"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
)

// summaryOf provides what was measured.
type summaryOf struct{ s *statsapi.Summary }

func (p summaryOf) Get(context.Context, bool) (*statsapi.Summary, error) { return p.s, nil }

func (p summaryOf) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) { return p.s, nil }

func theirMetrics(t testing.TB, s *statsapi.Summary) string {
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(collectors.NewResourceMetricsCollector(summaryOf{s}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if f.GetName() == "scrape_error" { // the old name of resource_scrape_error
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
