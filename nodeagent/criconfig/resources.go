package criconfig

import (
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/qos"
	podlevel "monoplane.dev/rules/resources"
)

// Bounds and units of the kernel's cgroup settings.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	quotaPeriod  = 100000 // microseconds
	minQuota     = 1000
	maxMilli     = 1 << 40 // more thousandths of processors than there are
)

// Resources returns the cgroup settings of a container: shares from the processor request, a quota and a memory limit
// from the limits, which are the pod's where the container has none of its own. A quantity that cannot be read counts
// as unset; the API refuses such pods. spec: CTR-10, QOS-3
func Resources(p *corev1.Pod, c *corev1.Container, f Facts) *runtimeapi.LinuxContainerResources {
	whole := p.GetSpec().GetResources().GetLimits()
	limits, requests := c.GetResources().GetLimits(), c.GetResources().GetRequests()
	cpu, memory := milli(limits, podlevel.CPU), amount(limits, podlevel.Memory)
	if cpu == 0 {
		cpu = milli(whole, podlevel.CPU)
	}
	if memory == 0 {
		memory = amount(whole, podlevel.Memory)
	}
	request := milli(requests, podlevel.CPU)
	if _, set := requests[podlevel.CPU]; !set {
		request = cpu
	}
	n := f.node()
	r := cgroup(request, cpu, memory)
	r.OomScoreAdj = oomScoreAdj(p, c, n.Memory)
	r.HugepageLimits = hugePages(n.HugePages, whole, limits)
	noSwap(r, n)
	if n.MemoryQoS && n.CgroupV2 {
		memoryQoS(r, p, c, n)
	}
	return r
}

// cgroup returns settings for thousandths of processors that are requested and allowed, and bytes of memory; 0 for no
// limit.
func cgroup(request, limit, memory int64) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: minShares, MemoryLimitInBytes: memory}
	if request > 0 {
		r.CpuShares = min(max(min(request, maxMilli)*sharesPerCPU/1000, minShares), maxShares)
	}
	if limit > 0 {
		r.CpuPeriod, r.CpuQuota = quotaPeriod, max(min(limit, maxMilli)*quotaPeriod/1000, minQuota)
	}
	return r
}

// hugePages limits every size of huge pages that the machine has: to nothing, unless the pod or, which wins, the
// container says otherwise.
func hugePages(sizes []string, whole, own map[string]*metav1.Quantity) []*runtimeapi.HugepageLimit {
	if len(sizes) == 0 {
		return nil
	}
	out := make([]*runtimeapi.HugepageLimit, len(sizes))
	for i, size := range sizes {
		out[i] = &runtimeapi.HugepageLimit{PageSize: size}
	}
	for _, limits := range [...]map[string]*metav1.Quantity{whole, own} {
		for name := range limits {
			size := hugePageSize(name)
			if i := slices.Index(sizes, size); i >= 0 && size != "" {
				out[i].Limit = uint64(amount(limits, name)) //nolint:gosec // not negative
			}
		}
	}
	return out
}

// hugePageSize returns the size that a resource such as "hugepages-2Mi" has in the kernel's words, such as "2MB";
// empty for other resources.
func hugePageSize(name string) string {
	if !podlevel.IsHugePages(name) {
		return ""
	}
	q, err := value.Quantity(&metav1.Quantity{String_: name[len(podlevel.HugePagesPrefix):]})
	if err != nil {
		return ""
	}
	return HugePageName(q.Value())
}

// HugePageName returns the kernel's word for huge pages of so many bytes, such as "2MB".
func HugePageName(size int64) string {
	units := [...]string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; size >= 1024 && i < len(units)-1; i++ {
		size /= 1024
	}
	return strconv.FormatInt(size, 10) + units[i]
}

// Settings of cgroup2 for memory.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
	swapMax    = "memory.swap.max"
)

// noSwap keeps a container off the node's swap space: its memory would be slower than it may expect, and its limit
// would not be one.
func noSwap(r *runtimeapi.LinuxContainerResources, n *Node) {
	switch {
	case !n.Swap:
	case n.CgroupV2:
		r.Unified = map[string]string{swapMax: "0"}
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // of both together
	}
}

// memoryQoS reserves what a container requests, and slows it down before it reaches its limit, or before the node is
// full. spec: QOS-3
func memoryQoS(r *runtimeapi.LinuxContainerResources, p *corev1.Pod, c *corev1.Container, n *Node) {
	if r.Unified == nil {
		r.Unified = make(map[string]string, 2)
	}
	request := amount(c.GetResources().GetRequests(), podlevel.Memory)
	if request > 0 {
		r.Unified[reservation(p)] = strconv.FormatInt(request, 10)
	}
	limit := amount(c.GetResources().GetLimits(), podlevel.Memory)
	if request == limit {
		return // the limit is all that it may expect; kubelets do not slow down those that say nothing either
	}
	if limit == 0 {
		limit = n.AllocatableMemory
	}
	// At nine tenths of the way from the request to the limit, in whole pages.
	const throttling = 0.9
	page := max(n.PageSize, 1)
	high := int64(float64(request)+(float64(limit)-float64(request))*throttling) / page * page
	if high > request {
		r.Unified[memoryHigh] = strconv.FormatInt(high, 10)
	}
}

// reservation returns the setting that protects what a pod requests: entirely for those that request all they may
// have, and for others as long as there is memory elsewhere.
func reservation(p *corev1.Pod) string {
	if qos.Of(p) == qos.Guaranteed {
		return memoryMin
	}
	return memoryLow
}

// sandboxResources returns what the containers of a pod need together. Runtimes that put pods into virtual machines
// make them as large.
func sandboxResources(spec *corev1.PodSpec) *runtimeapi.LinuxContainerResources {
	requests, limits := podlevel.RequestsForItself(spec), podlevel.LimitsForItself(spec)
	limit, _ := limits.Get(podlevel.CPU)
	request, ok := requests.Get(podlevel.CPU)
	if !ok {
		request = limit
	}
	memory, _ := limits.Get(podlevel.Memory)
	return cgroup(request.MilliValue(), limit.MilliValue(), memory.Value())
}

// overhead returns what the runtime needs for the pod, nil for nothing.
func overhead(spec *corev1.PodSpec) *runtimeapi.LinuxContainerResources {
	o := spec.GetOverhead()
	if len(o) == 0 {
		return nil
	}
	cpu := milli(o, podlevel.CPU)
	return cgroup(cpu, cpu, amount(o, podlevel.Memory))
}

// maxPIDs is the setting of a cgroup that limits its processes and threads.
const maxPIDs = "pids.max"

// PodResources returns the settings of the cgroup of a pod, in which those of its containers are. Processor time and
// memory are limited only if the pod says so or every container does, since one without a limit may use what there is.
// spec: INIT-8, QOS-3
func PodResources(p *corev1.Pod, f Facts) *runtimeapi.LinuxContainerResources {
	spec, n := p.GetSpec(), f.node()
	class := qos.Of(p)
	requests, limits := podlevel.Requests(spec), podlevel.LimitsForItself(spec)
	var unified map[string]string
	if n.PodMaxPIDs > 0 {
		unified = map[string]string{maxPIDs: strconv.FormatInt(n.PodMaxPIDs, 10)}
	}
	if q, _ := requests.Get(podlevel.Memory); n.MemoryQoS && n.CgroupV2 && q.Sign() > 0 {
		if unified == nil {
			unified = make(map[string]string, 1)
		}
		unified[reservation(p)] = strconv.FormatInt(q.Value(), 10)
	}
	if class == qos.BestEffort { // of which there may be an overhead
		return &runtimeapi.LinuxContainerResources{CpuShares: minShares, Unified: unified}
	}
	request, _ := requests.Get(podlevel.CPU)
	cpu, memory := int64(0), int64(0)
	if class == qos.Guaranteed || limited(spec, podlevel.CPU) {
		q, _ := limits.Get(podlevel.CPU)
		cpu = plusOverhead(q.MilliValue(), milli(spec.GetOverhead(), podlevel.CPU))
	}
	if class == qos.Guaranteed || limited(spec, podlevel.Memory) {
		q, _ := limits.Get(podlevel.Memory)
		memory = plusOverhead(q.Value(), amount(spec.GetOverhead(), podlevel.Memory))
	}
	r := cgroup(request.MilliValue(), cpu, memory)
	for _, a := range requests {
		if size := hugePageSize(a.Name); slices.Contains(n.HugePages, size) {
			limit := uint64(max(0, a.Quantity.Value())) //nolint:gosec // not negative
			r.HugepageLimits = append(r.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: size, Limit: limit})
		}
	}
	r.Unified = unified
	return r
}

// plusOverhead adds the overhead to a limit, if there is one.
func plusOverhead(limit, overhead int64) int64 {
	if limit == 0 {
		return 0
	}
	return limit + overhead
}

// limited reports whether the pod as a whole, or else each of its containers, has a limit of a resource.
func limited(spec *corev1.PodSpec, name string) bool {
	if amount(spec.GetResources().GetLimits(), name) > 0 {
		return true
	}
	for _, list := range [...][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			if amount(c.GetResources().GetLimits(), name) == 0 {
				return false
			}
		}
	}
	return true
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
