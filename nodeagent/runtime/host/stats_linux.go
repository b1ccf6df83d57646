package host

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// ContainerStats implements CRI. What the cgroups do not tell is absent.
func (r *Runtime) ContainerStats(
	_ context.Context, req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats implements CRI, for containers that run.
func (r *Runtime) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	r.mu.RLock()
	var list []*container
	for _, c := range r.containers {
		if c.state.Phase != shimwire.Running || f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sb.id ||
			!labelsMatch(c.rec.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		list = append(list, c)
	}
	r.mu.RUnlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range list {
		resp.Stats = append(resp.Stats, c.stats())
	}
	return resp, nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	config := c.rec.config
	s := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}}
	at := now()
	u := cgroup.Stats(c.rec.group)
	if u.CPUNanos >= 0 {
		s.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: known(u.CPUNanos)}
	}
	if u.MemoryBytes >= 0 {
		s.Memory = &runtimeapi.MemoryUsage{Timestamp: at, UsageBytes: known(u.MemoryBytes),
			WorkingSetBytes: known(u.WorkingSet), RssBytes: known(u.Anonymous), AvailableBytes: known(u.Available),
			PageFaults: known(u.Faults), MajorPageFaults: known(u.MajorFaults)}
	}
	// What it writes, it writes to the machine's filesystem: there is no layer of its own.
	s.WritableLayer = &runtimeapi.FilesystemUsage{Timestamp: at, UsedBytes: known(0), InodesUsed: known(0),
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.sb.dir}}
	return s
}

func known(n int64) *runtimeapi.UInt64Value {
	if n < 0 {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: uint64(n)}
}
