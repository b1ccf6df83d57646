package host

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
)

// A metric of the list. Their names, labels and units are those that monitoring knows from cAdvisor: those of a pod
// as a whole have no container, image and name.
type metric[T any] struct {
	name, help string
	kind       runtimeapi.MetricType
	value      func(of T) *runtimeapi.UInt64Value // Nil for what is not known, of which nothing is said.
	at         func(of T) int64                   // When it was measured; nil for now.
}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// usage is of a container, or of a pod as a whole.
type usage struct {
	cpu       *runtimeapi.CpuUsage
	memory    *runtimeapi.MemoryUsage
	processes *runtimeapi.ProcessUsage
	layer     *runtimeapi.FilesystemUsage
	started   int64 // Nanoseconds; 0 where it does not run.
}

var usageLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

var usageMetrics = []metric[usage]{
	{"container_cpu_usage_seconds_total", "CPU time that was used, in whole seconds.", counter,
		func(u usage) *runtimeapi.UInt64Value { return inSeconds(u.cpu.GetUsageCoreNanoSeconds()) }, nil},
	{"container_memory_usage_bytes", "Memory that is used, with caches.", gauge,
		func(u usage) *runtimeapi.UInt64Value { return u.memory.GetUsageBytes() }, nil},
	{"container_memory_working_set_bytes", "Memory that is used and cannot be taken back easily.", gauge,
		func(u usage) *runtimeapi.UInt64Value { return u.memory.GetWorkingSetBytes() }, nil},
	{"container_memory_rss", "Memory that is used and belongs to no file, in bytes.", gauge,
		func(u usage) *runtimeapi.UInt64Value { return u.memory.GetRssBytes() }, nil},
	{"container_threads", "Threads of all processes.", gauge,
		func(u usage) *runtimeapi.UInt64Value { return u.processes.GetProcessCount() }, nil},
	{"container_fs_usage_bytes", "What it has written to the layer of its own.", gauge,
		func(u usage) *runtimeapi.UInt64Value { return u.layer.GetUsedBytes() },
		func(u usage) int64 { return u.layer.GetTimestamp() }},
	{"container_start_time_seconds", "When it was started, in seconds since 1970.", gauge,
		func(u usage) *runtimeapi.UInt64Value {
			if u.started == 0 {
				return nil
			}
			return inSeconds(known(u.started))
		}, nil},
}

var networkLabels = []string{"id", "interface", "namespace", "pod"}

var networkMetrics = []metric[*runtimeapi.NetworkInterfaceUsage]{
	{"container_network_receive_bytes_total", "What a link of the pod has received.", counter,
		(*runtimeapi.NetworkInterfaceUsage).GetRxBytes, nil},
	{"container_network_receive_errors_total", "Errors in receiving.", counter,
		(*runtimeapi.NetworkInterfaceUsage).GetRxErrors, nil},
	{"container_network_transmit_bytes_total", "What a link of the pod has sent.", counter,
		(*runtimeapi.NetworkInterfaceUsage).GetTxBytes, nil},
	{"container_network_transmit_errors_total", "Errors in sending.", counter,
		(*runtimeapi.NetworkInterfaceUsage).GetTxErrors, nil},
}

func inSeconds(nanos *runtimeapi.UInt64Value) *runtimeapi.UInt64Value {
	if nanos == nil {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: nanos.GetValue() / uint64(time.Second)}
}

func descriptors[T any](all []metric[T], labels []string) []*runtimeapi.MetricDescriptor {
	var out []*runtimeapi.MetricDescriptor
	for _, m := range all {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: labels})
	}
	return out
}

func measured[T any](all []metric[T], of T, labels ...string) []*runtimeapi.Metric {
	var out []*runtimeapi.Metric
	for _, m := range all {
		v := m.value(of)
		if v == nil {
			continue
		}
		one := &runtimeapi.Metric{Name: m.name, MetricType: m.kind, LabelValues: labels, Value: v}
		if m.at != nil {
			one.Timestamp = m.at(of)
		}
		out = append(out, one)
	}
	return out
}

// ListMetricDescriptors implements CRI: what ListPodSandboxMetrics tells.
func (r *Runtime) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{
		Descriptors: slices.Concat(descriptors(usageMetrics, usageLabels), descriptors(networkMetrics, networkLabels)),
	}, nil
}

// ListPodSandboxMetrics implements CRI: what the stats of sandboxes that are ready say, in the words of monitoring.
func (r *Runtime) ListPodSandboxMetrics(
	ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	pods, err := r.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ListPodSandboxMetricsResponse{}
	for _, pod := range pods.GetStats() {
		out.PodMetrics = append(out.PodMetrics, r.podMetrics(pod))
	}
	return out, nil
}

func (r *Runtime) podMetrics(pod *runtimeapi.PodSandboxStats) *runtimeapi.PodSandboxMetrics {
	id, linux := pod.GetAttributes().GetId(), pod.GetLinux()
	namespace, name := pod.GetAttributes().GetMetadata().GetNamespace(), pod.GetAttributes().GetMetadata().GetName()
	whole := usage{cpu: linux.GetCpu(), memory: linux.GetMemory(), processes: linux.GetProcess()}
	out := &runtimeapi.PodSandboxMetrics{PodSandboxId: id,
		Metrics: measured(usageMetrics, whole, "", id, "", "", namespace, name)}
	links := linux.GetNetwork().GetInterfaces()
	if first := linux.GetNetwork().GetDefaultInterface(); first != nil {
		links = append(links, first)
	}
	for _, link := range links {
		out.Metrics = append(out.Metrics, measured(networkMetrics, link, id, link.GetName(), namespace, name)...)
	}
	for _, s := range linux.GetContainers() {
		id := s.GetAttributes().GetId()
		r.mu.RLock()
		c := r.containers[id]
		var image string
		u := usage{cpu: s.GetCpu(), memory: s.GetMemory(), layer: s.GetWritableLayer()}
		if c != nil {
			image, u.started = c.rec.config.GetImage().GetImage(), c.state.StartedAt
		}
		r.mu.RUnlock()
		if c == nil { // It is gone since.
			continue
		}
		u.processes = &runtimeapi.ProcessUsage{ProcessCount: known(cgroup.Tasks(c.rec.group))}
		out.ContainerMetrics = append(out.ContainerMetrics, &runtimeapi.ContainerMetrics{ContainerId: id,
			Metrics: measured(usageMetrics, u, s.GetAttributes().GetMetadata().GetName(), id, image, id, namespace, name)})
	}
	return out
}
