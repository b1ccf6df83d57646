package nodeagent

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/probe"
	"monoplane.dev/nodeagent/summary"
)

// probed says which probe it is of a pod.
type probed struct {
	container string
	kind      podstate.ProbeKind
}

// results are how often a probe has ended in each way.
type results [probe.Failure + 1]int

// resultNames are the labels of results, as kubelets write them.
var resultNames = [...]string{probe.Unknown: "unknown", probe.Success: "successful", probe.Failure: "failed"}

// count notes how a probe of a container has ended.
func (w *worker) count(container string, kind podstate.ProbeKind, result probe.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.probed == nil {
		w.probed = make(map[probed]results)
	}
	of := probed{container, kind}
	r := w.probed[of]
	r[result]++
	w.probed[of] = r
}

// probes is a collector of how often probes have ended in each way, of the pods that there are.
type probes struct {
	agent *Agent
	total *prometheus.Desc
}

func (a *Agent) probes() probes {
	return probes{a, prometheus.NewDesc("prober_probe_total",
		"[BETA] Probes of containers, by what they are for and how they ended.", []string{
			"probe_type", "result", "container", "pod", "namespace", "pod_uid",
		}, nil)}
}

// Describe implements prometheus.Collector.
func (p probes) Describe(ch chan<- *prometheus.Desc) { ch <- p.total }

// Collect implements prometheus.Collector.
func (p probes) Collect(ch chan<- prometheus.Metric) {
	for _, w := range p.agent.here() {
		w.mu.Lock()
		all := maps.Clone(w.probed)
		w.mu.Unlock()
		meta := w.pod().GetMetadata()
		for of, counts := range all {
			for result, n := range counts {
				if n > 0 {
					ch <- prometheus.MustNewConstMetric(p.total, prometheus.CounterValue, float64(n), of.kind.String(),
						resultNames[result], of.container, meta.GetName(), meta.GetNamespace(), w.uid)
				}
			}
		}
	}
}

// volumeStats is a collector of what the volumes of claims hold, by claim.
type volumeStats struct {
	of *summary.Summary

	capacity, available, used, inodes, inodesFree, inodesUsed *prometheus.Desc
}

func newVolumeStats(of *summary.Summary) volumeStats {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kubelet_volume_stats_"+name, "[ALPHA] "+help,
			[]string{"namespace", "persistentvolumeclaim"}, nil)
	}
	return volumeStats{
		of:         of,
		capacity:   desc("capacity_bytes", "What the volume can hold."),
		available:  desc("available_bytes", "What the volume can still hold."),
		used:       desc("used_bytes", "What the volume holds."),
		inodes:     desc("inodes", "How many inodes the volume can have."),
		inodesFree: desc("inodes_free", "How many inodes the volume can still have."),
		inodesUsed: desc("inodes_used", "How many inodes the volume has."),
	}
}

// Describe implements prometheus.Collector.
func (v volumeStats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{v.capacity, v.available, v.used, v.inodes, v.inodesFree, v.inodesUsed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A claim that several pods use is told once.
func (v volumeStats) Collect(ch chan<- prometheus.Metric) {
	told := make(map[summary.Claim]bool)
	for i := range v.of.Pods {
		for _, volume := range v.of.Pods[i].Volumes {
			claim := volume.Claim
			if claim == nil || told[*claim] {
				continue
			}
			told[*claim] = true
			for d, n := range map[*prometheus.Desc]*uint64{
				v.capacity: volume.Capacity, v.available: volume.Available, v.used: volume.Used,
				v.inodes: volume.Inodes, v.inodesFree: volume.InodesFree, v.inodesUsed: volume.InodesUsed,
			} {
				if n != nil {
					ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(*n), claim.Namespace, claim.Name)
				}
			}
		}
	}
}
