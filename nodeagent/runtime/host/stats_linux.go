package host

import (
	"cmp"
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// ContainerStats implements CRI. What the cgroups do not tell is what the container's processes tell, or absent.
func (r *Runtime) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.containerStats(c)}, nil
}

// ListContainerStats implements CRI, for containers that run.
func (r *Runtime) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	r.mu.RLock()
	var list []*container
	for _, c := range r.containers {
		if !c.runsLocked() || f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sb.id ||
			!labelsMatch(c.rec.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		list = append(list, c)
	}
	r.mu.RUnlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range list {
		resp.Stats = append(resp.Stats, r.containerStats(c))
	}
	return resp, nil
}

func (c *container) runsLocked() bool { return c.state.Phase == shimwire.Running }

// PodSandboxStats implements CRI, as ContainerStats does.
func (r *Runtime) PodSandboxStats(
	_ context.Context, req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	var running []*container
	if sb != nil {
		running = sb.runningLocked()
	}
	r.mu.RUnlock()
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.sandboxStats(sb, running)}, nil
}

// ListPodSandboxStats implements CRI, for sandboxes that are ready.
func (r *Runtime) ListPodSandboxStats(
	_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	r.mu.RLock()
	running := make(map[*sandbox][]*container)
	for _, sb := range r.sandboxes {
		if (f.GetId() == "" || f.GetId() == sb.id) && sb.stateLocked() == runtimeapi.PodSandboxState_SANDBOX_READY &&
			labelsMatch(sb.rec.config.GetLabels(), f.GetLabelSelector()) {
			running[sb] = sb.runningLocked()
		}
	}
	r.mu.RUnlock()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	for sb, containers := range running {
		resp.Stats = append(resp.Stats, r.sandboxStats(sb, containers))
	}
	return resp, nil
}

func (sb *sandbox) runningLocked() []*container {
	var out []*container
	for _, c := range sb.containers {
		if c.runsLocked() {
			out = append(out, c)
		}
	}
	return out
}

// sandboxStats says what a pod uses: cpu and network since the pod is there, with containers that have ended, and the
// rest of those that run. Of a pod on the machine's network nothing is told that goes over it.
func (r *Runtime) sandboxStats(sb *sandbox, running []*container) *runtimeapi.PodSandboxStats {
	config, at := sb.rec.config, now()
	linux := &runtimeapi.LinuxPodSandboxStats{}
	if nanos := cgroup.CPU(sb.rec.group); nanos >= 0 {
		linux.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: known(nanos),
			UsageNanoCores: known(sb.cpu.rate(at, nanos))}
	}
	if r.ownNetwork(config) {
		linux.Network = networkUse(sb, at)
	}
	tasks, counted := int64(0), len(running) > 0
	for _, c := range running {
		s := r.containerStats(c)
		linux.Containers = append(linux.Containers, s)
		linux.Memory = sum(linux.Memory, s.GetMemory())
		n := cgroup.Tasks(c.rec.group)
		tasks, counted = tasks+n, counted && n >= 0
	}
	if counted {
		linux.Process = &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: known(tasks)}
	}
	return &runtimeapi.PodSandboxStats{Linux: linux, Attributes: &runtimeapi.PodSandboxAttributes{
		Id: sb.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}}
}

// sum adds up what containers use, as far as it is known. What their limits leave counts only if all have one.
func sum(a, b *runtimeapi.MemoryUsage) *runtimeapi.MemoryUsage {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	add := func(m, n *runtimeapi.UInt64Value) *runtimeapi.UInt64Value {
		if m == nil || n == nil {
			return cmp.Or(m, n)
		}
		return &runtimeapi.UInt64Value{Value: m.GetValue() + n.GetValue()}
	}
	both := &runtimeapi.MemoryUsage{
		Timestamp: b.GetTimestamp(), UsageBytes: add(a.GetUsageBytes(), b.GetUsageBytes()),
		WorkingSetBytes: add(a.GetWorkingSetBytes(), b.GetWorkingSetBytes()),
		RssBytes:        add(a.GetRssBytes(), b.GetRssBytes()), PageFaults: add(a.GetPageFaults(), b.GetPageFaults()),
		MajorPageFaults: add(a.GetMajorPageFaults(), b.GetMajorPageFaults()),
	}
	if a.GetAvailableBytes() != nil && b.GetAvailableBytes() != nil {
		both.AvailableBytes = add(a.GetAvailableBytes(), b.GetAvailableBytes())
	}
	return both
}

// meter makes the rate out of cpu times that are read now and then. The zero value is ready.
type meter struct {
	mu      sync.Mutex
	at, cpu int64 // of the reading from which the next rate is made
	nano    int64
	known   bool
}

// meterWindow is the shortest time, in nanoseconds, over which a rate is made; what is asked sooner gets the last one.
const meterWindow = int64(time.Second)

// rate returns thousand-millionths of a cpu, negative until there are two readings to tell.
func (m *meter) rate(at, cpu int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.at == 0 || cpu < m.cpu:
		m.at, m.cpu, m.known = at, cpu, false
	case at-m.at >= meterWindow:
		m.nano, m.known = int64(float64(cpu-m.cpu)/float64(at-m.at)*float64(time.Second)), true
		m.at, m.cpu = at, cpu
	}
	if !m.known {
		return -1
	}
	return m.nano
}

func (r *Runtime) containerStats(c *container) *runtimeapi.ContainerStats {
	config := c.rec.config
	s := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}}
	at := now()
	u := cgroup.Stats(c.rec.group)
	if u.CPUNanos < 0 || u.MemoryBytes < 0 {
		cpu, memory := r.processesUse(c)
		if u.CPUNanos < 0 {
			u.CPUNanos = cpu
		}
		if u.MemoryBytes < 0 {
			u.MemoryBytes, u.WorkingSet = memory, memory
		}
	}
	if u.CPUNanos >= 0 {
		s.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: known(u.CPUNanos),
			UsageNanoCores: known(c.cpu.rate(at, u.CPUNanos))}
	}
	if u.MemoryBytes >= 0 {
		s.Memory = &runtimeapi.MemoryUsage{Timestamp: at, UsageBytes: known(u.MemoryBytes),
			WorkingSetBytes: known(u.WorkingSet), RssBytes: known(u.Anonymous), AvailableBytes: known(u.Available),
			PageFaults: known(u.Faults), MajorPageFaults: known(u.MajorFaults)}
	}
	if c.rec.image != "" {
		s.WritableLayer = r.layer(c)
		return s
	}
	// What it writes, it writes to the machine's filesystem: there is no layer of its own.
	s.WritableLayer = &runtimeapi.FilesystemUsage{Timestamp: at, UsedBytes: known(0), InodesUsed: known(0),
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.sb.dir}}
	return s
}

// processesUse says what the processes of a container use; negative when it does not run.
func (r *Runtime) processesUse(c *container) (cpu, memory int64) {
	r.mu.RLock()
	first := sys.Proc{PID: int(c.state.PID), Start: uint64(c.state.Born)}
	runs := c.runsLocked()
	r.mu.RUnlock()
	if !runs || !sys.IsAlive(first) {
		return -1, -1
	}
	return c.processes.read(first.PID)
}

func known(n int64) *runtimeapi.UInt64Value {
	if n < 0 {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: uint64(n)}
}
