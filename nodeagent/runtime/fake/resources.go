package fake

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// keptResources are those of a container that can be read back; nil for none.
func keptResources(r *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerConfig {
	if r == nil {
		return nil
	}
	return &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
		CpuShares: r.GetCpuShares(), CpuQuota: r.GetCpuQuota(), CpuPeriod: r.GetCpuPeriod(),
		MemoryLimitInBytes: r.GetMemoryLimitInBytes(),
	}}
}

// UpdateContainerResources implements runtimeapi.RuntimeServiceServer: what a running container has is what was asked
// for last.
func (r *Runtime) UpdateContainerResources(
	_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	if err := r.fault("UpdateContainerResources", req.GetContainerId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := r.containers[req.GetContainerId()]
	r.mu.Unlock()
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "container %q does not exist", req.GetContainerId())
	}
	b := c.behaviour()
	if d, ok := b.duration("update-delay"); ok && d > 0 {
		time.Sleep(d)
	}
	if text := b.text("update-error"); text != "" {
		return nil, status.Error(codes.Unknown, text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED || r.containers[c.id] != c {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q does not run", c.id)
	}
	config := c.packed.get()
	config.Linux = keptResources(req.GetLinux())
	if err := c.packed.put(config); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the container's resources cannot be encoded: %v", err)
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ListContainerStats implements runtimeapi.RuntimeServiceServer: it tells how much cpu and memory those containers use
// of which an annotation, or else the configuration, says it.
func (r *Runtime) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	out, now := &runtimeapi.ListContainerStatsResponse{}, time.Now()
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			c.state != runtimeapi.ContainerState_CONTAINER_RUNNING || !c.packed.mayMatch(f.GetLabelSelector()) {
			continue
		}
		b := c.behaviour()
		cpu, noCPU := resource.ParseQuantity(cmp.Or(b.text("cpu"), r.cfg.CPU))
		memory, noMemory := resource.ParseQuantity(cmp.Or(b.text("memory"), r.cfg.Memory))
		if noCPU != nil && noMemory != nil {
			continue
		}
		config := c.packed.get()
		if !matches(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		s := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		}}
		if noCPU == nil {
			nano := max(0, cpu.ScaledValue(resource.Nano))
			s.Cpu = &runtimeapi.CpuUsage{
				Timestamp: now.UnixNano(), UsageNanoCores: value(float64(nano)),
				UsageCoreNanoSeconds: value(float64(nano) * now.Sub(c.started).Seconds()),
			}
		}
		if noMemory == nil {
			bytes := value(float64(max(0, memory.Value())))
			s.Memory = &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), UsageBytes: bytes, WorkingSetBytes: bytes}
		}
		out.Stats = append(out.Stats, s)
	}
	return out, nil
}

// value wraps a number, which is not negative.
func value(n float64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: uint64(n)} }
