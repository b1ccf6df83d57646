package summary

import (
	"bytes"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// MetricsType is the Content-Type of metrics.
const MetricsType = "text/plain; version=0.0.4; charset=utf-8"

// The metrics of /metrics/resource, with the names, labels and help of kubelets.
var (
	ofContainer = []string{"container", "pod", "namespace"}
	ofPod       = []string{"pod", "namespace"}
)

// resources is a collector of a summary's metrics. They have the time of what was measured.
type resources struct {
	nodeCPU, nodeMemory, nodeSwap, started, containerCPU, containerMemory, containerSwap, containerSwapLimit, podCPU,
	podMemory, podSwap, failed *prometheus.Desc

	of *Summary
}

func newResources(of *Summary) *resources {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &resources{
		of: of,
		nodeCPU: desc("node_cpu_usage_seconds_total",
			"[STABLE] Cumulative cpu time consumed by the node in core-seconds"),
		nodeMemory: desc("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes"),
		nodeSwap: desc("node_swap_usage_bytes",
			"[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems"),
		started: desc("container_start_time_seconds",
			"[STABLE] Start time of the container since unix epoch in seconds", ofContainer...),
		containerCPU: desc("container_cpu_usage_seconds_total",
			"[STABLE] Cumulative cpu time consumed by the container in core-seconds", ofContainer...),
		containerMemory: desc("container_memory_working_set_bytes",
			"[STABLE] Current working set of the container in bytes", ofContainer...),
		containerSwap: desc("container_swap_usage_bytes", "[ALPHA] Current amount of the container swap usage in bytes. "+
			"Reported only on non-windows systems", ofContainer...),
		containerSwapLimit: desc("container_swap_limit_bytes", "[ALPHA] Current amount of the container swap limit in "+
			"bytes. Reported only on non-windows systems", ofContainer...),
		podCPU: desc("pod_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
			ofPod...),
		podMemory: desc("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes", ofPod...),
		podSwap: desc("pod_swap_usage_bytes",
			"[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", ofPod...),
		failed: desc("resource_scrape_error",
			"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"),
	}
}

// Describe implements prometheus.Collector.
func (r *resources) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector.
func (r *resources) Collect(ch chan<- prometheus.Metric) {
	failed := 0.0
	if r.of == nil {
		failed = 1
	}
	ch <- prometheus.MustNewConstMetric(r.failed, prometheus.GaugeValue, failed)
	if r.of == nil {
		return
	}
	n := &r.of.Node
	cpu(ch, r.nodeCPU, n.CPU)
	memory(ch, r.nodeMemory, n.Memory)
	swap(ch, r.nodeSwap, n.Swap)
	for i := range r.of.Pods {
		p := &r.of.Pods[i]
		ref := []string{p.Ref.Name, p.Ref.Namespace}
		for j := range p.Containers {
			r.container(ch, &p.Containers[j], append([]string{p.Containers[j].Name}, ref...))
		}
		cpu(ch, r.podCPU, p.CPU, ref...)
		memory(ch, r.podMemory, p.Memory, ref...)
		swap(ch, r.podSwap, p.Swap, ref...)
	}
}

func (r *resources) container(ch chan<- prometheus.Metric, c *Container, labels []string) {
	if !c.StartTime.IsZero() {
		ch <- prometheus.MustNewConstMetric(r.started, prometheus.GaugeValue,
			float64(c.StartTime.UnixNano())/float64(time.Second), labels...)
	}
	cpu(ch, r.containerCPU, c.CPU, labels...)
	memory(ch, r.containerMemory, c.Memory, labels...)
	swap(ch, r.containerSwap, c.Swap, labels...)
	if s := c.Swap; s != nil && s.Available != nil {
		limit := *s.Available
		if s.Usage != nil {
			limit += *s.Usage
		}
		send(ch, r.containerSwapLimit, prometheus.GaugeValue, float64(limit), s.Time, labels)
	}
}

func cpu(ch chan<- prometheus.Metric, d *prometheus.Desc, c *CPU, labels ...string) {
	if c != nil && c.CoreNanoSeconds != nil {
		send(ch, d, prometheus.CounterValue, float64(*c.CoreNanoSeconds)/float64(time.Second), c.Time, labels)
	}
}

func memory(ch chan<- prometheus.Metric, d *prometheus.Desc, m *Memory, labels ...string) {
	if m != nil && m.WorkingSet != nil {
		send(ch, d, prometheus.GaugeValue, float64(*m.WorkingSet), m.Time, labels)
	}
}

func swap(ch chan<- prometheus.Metric, d *prometheus.Desc, s *Swap, labels ...string) {
	if s != nil && s.Usage != nil {
		send(ch, d, prometheus.GaugeValue, float64(*s.Usage), s.Time, labels)
	}
}

func send(
	ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, v float64, at Time, labels []string,
) {
	ch <- prometheus.NewMetricWithTimestamp(at.Time, prometheus.MustNewConstMetric(d, kind, v, labels...))
}

// Metrics returns the text of /metrics/resource. A nil Summary could not be measured, and the metrics say so.
func (s *Summary) Metrics() ([]byte, error) { return Text(newResources(s)) }

// Text returns what collectors tell in the text form of metrics.
func Text(all ...prometheus.Collector) ([]byte, error) {
	registry := prometheus.NewRegistry()
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
