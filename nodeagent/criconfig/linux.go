package criconfig

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	podlevel "monoplane.dev/rules/resources"
)

// namespaces says which of the kernel's namespaces the pod shares with the node.
func namespaces(p *corev1.Pod, _ Facts) *runtimeapi.NamespaceOption {
	s := p.GetSpec()
	// A process namespace is each container's own unless the pod says otherwise.
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if s.GetShareProcessNamespace() {
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	if s.GetHostPID() {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	if s.GetHostNetwork() {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if s.GetHostIPC() {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// maskedPaths returns what a container must not see of the kernel. Runtimes hide only what they are told to hide.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// readonlyPaths returns what a container must not change: settings of the node's kernel.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// Bounds and units of the kernel's cgroup settings.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	quotaPeriod  = 100000 // microseconds
	minQuota     = 1000
)

// resources returns the cgroup settings of a container: shares from the processor request, a quota and a memory
// limit from the limits. A quantity that cannot be read counts as unset; the API refuses such pods. spec: CTR-10
func resources(c *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits, requests := c.GetResources().GetLimits(), c.GetResources().GetRequests()
	request := milli(requests, "cpu")
	if _, set := requests["cpu"]; !set {
		request = milli(limits, "cpu")
	}
	return cgroup(request, milli(limits, "cpu"), amount(limits, "memory"))
}

// cgroup returns settings for thousandths of processors that are requested and allowed, and bytes of memory; 0 for no
// limit.
func cgroup(request, limit, memory int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: minShares, MemoryLimitInBytes: memory}
	if request > 0 {
		r.CpuShares = min(max(request*sharesPerCPU/1000, minShares), maxShares)
	}
	if limit > 0 {
		r.CpuPeriod, r.CpuQuota = quotaPeriod, max(limit*quotaPeriod/1000, minQuota)
	}
	return r
}

// podResources returns what the containers of a pod need together, and its overhead. Runtimes that put pods into
// virtual machines make them as large.
func podResources(spec *corev1.PodSpec) (all, overhead *runtimeapi.LinuxContainerResources) {
	requests, limits := podlevel.ContainerRequests(spec), podlevel.ContainerLimits(spec)
	request, _ := requests.Get(podlevel.CPU)
	limit, _ := limits.Get(podlevel.CPU)
	memory, _ := limits.Get(podlevel.Memory)
	all = cgroup(request.MilliValue(), limit.MilliValue(), memory.Value())
	if o := spec.GetOverhead(); len(o) > 0 {
		cpu := milli(o, podlevel.CPU)
		overhead = cgroup(cpu, cpu, amount(o, podlevel.Memory))
	}
	return all, overhead
}

func amount(m map[string]*metav1.Quantity, name string) int64 {
	q, err := value.Quantity(m[name])
	if err != nil {
		return 0
	}
	return max(0, q.Value())
}

func milli(m map[string]*metav1.Quantity, name string) int64 {
	q, err := value.Quantity(m[name])
	if err != nil {
		return 0
	}
	return max(0, q.MilliValue())
}
