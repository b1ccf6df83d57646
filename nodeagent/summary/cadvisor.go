package summary

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The labels of what /metrics/cadvisor tells, as kubelets serve it. What is told of a pod as a whole has its name and
// namespace only, so that sums over containers leave it out.
var (
	cadvisorLabels = []string{"container", "id", "image", "name", "namespace", "pod"}
	networkLabels  = []string{"container", "id", "image", "interface", "name", "namespace", "pod"}
)

// cadvisor is a collector of what dashboards know from cAdvisor, as far as it is measured.
type cadvisor struct {
	cpu, usage, workingSet, rss, swap, layer, started, failures *prometheus.Desc
	received, receiveErrors, sent, sendErrors                   *prometheus.Desc
	failed                                                      *prometheus.Desc

	of *Summary
}

func newCadvisor(of *Summary) *cadvisor {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("container_"+name, help, append(more, cadvisorLabels...), nil)
	}
	network := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("container_network_"+name, help, networkLabels, nil)
	}
	return &cadvisor{
		of:            of,
		cpu:           desc("cpu_usage_seconds_total", "CPU time that was used, in seconds.", "cpu"),
		usage:         desc("memory_usage_bytes", "Memory that is used, with caches."),
		workingSet:    desc("memory_working_set_bytes", "Memory that is used and cannot be taken back easily."),
		rss:           desc("memory_rss", "Memory that is used and belongs to no file, in bytes."),
		swap:          desc("memory_swap", "Swap that is used, in bytes."),
		layer:         desc("fs_usage_bytes", "What was written to the container's own layer.", "device"),
		started:       desc("start_time_seconds", "When the container was started, since the epoch."),
		failures:      desc("memory_failures_total", "Page faults.", "failure_type", "scope"),
		received:      network("receive_bytes_total", "What a link of the pod has received."),
		receiveErrors: network("receive_errors_total", "Errors in receiving."),
		sent:          network("transmit_bytes_total", "What a link of the pod has sent."),
		sendErrors:    network("transmit_errors_total", "Errors in sending."),
		failed: prometheus.NewDesc("container_scrape_error", "1 if containers could not be measured, else 0.", nil,
			nil),
	}
}

// Describe implements prometheus.Collector.
func (c *cadvisor) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *cadvisor) Collect(ch chan<- prometheus.Metric) {
	failed := 0.0
	if c.of == nil {
		failed = 1
	}
	ch <- prometheus.MustNewConstMetric(c.failed, prometheus.GaugeValue, failed)
	if c.of == nil {
		return
	}
	for i := range c.of.Pods {
		p := &c.of.Pods[i]
		for j := range p.Containers {
			c.container(ch, &p.Containers[j], p.Ref)
		}
		if n := p.Network; n != nil {
			for k, link := range append([]Interface{n.Interface}, n.Interfaces...) {
				if k > 0 && link.Name == n.Name { // Runtimes tell of the first one twice, or once.
					continue
				}
				labels := []string{"", "", "", link.Name, "", p.Ref.Namespace, p.Ref.Name}
				c.send(ch, c.received, prometheus.CounterValue, link.RxBytes, n.Time, labels)
				c.send(ch, c.receiveErrors, prometheus.CounterValue, link.RxErrors, n.Time, labels)
				c.send(ch, c.sent, prometheus.CounterValue, link.TxBytes, n.Time, labels)
				c.send(ch, c.sendErrors, prometheus.CounterValue, link.TxErrors, n.Time, labels)
			}
		}
	}
}

func (c *cadvisor) container(ch chan<- prometheus.Metric, of *Container, pod Reference) {
	labels := []string{of.Name, of.ID, of.Image, of.ID, pod.Namespace, pod.Name}
	with := func(more ...string) []string { return append(more, labels...) }
	if !of.StartTime.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.started, prometheus.GaugeValue,
			float64(of.StartTime.UnixNano())/float64(time.Second), labels...)
	}
	cpu(ch, c.cpu, of.CPU, with("total")...)
	if m := of.Memory; m != nil {
		c.send(ch, c.usage, prometheus.GaugeValue, m.Usage, m.Time, labels)
		c.send(ch, c.workingSet, prometheus.GaugeValue, m.WorkingSet, m.Time, labels)
		c.send(ch, c.rss, prometheus.GaugeValue, m.RSS, m.Time, labels)
		c.send(ch, c.failures, prometheus.CounterValue, m.Faults, m.Time, with("pgfault", "container"))
		c.send(ch, c.failures, prometheus.CounterValue, m.MajorFaults, m.Time, with("pgmajfault", "container"))
	}
	if s := of.Swap; s != nil {
		c.send(ch, c.swap, prometheus.GaugeValue, s.Usage, s.Time, labels)
	}
	if fs := of.RootFS; fs != nil {
		c.send(ch, c.layer, prometheus.GaugeValue, fs.Used, fs.Time, with(""))
	}
}

// send tells a value that is known.
func (c *cadvisor) send(
	ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, v *uint64, at Time, labels []string,
) {
	if v != nil {
		send(ch, d, kind, float64(*v), at, labels)
	}
}

// Cadvisor returns the text of /metrics/cadvisor. A nil Summary could not be measured, and the metrics say so.
func (s *Summary) Cadvisor() ([]byte, error) { return Text(newCadvisor(s)) }
