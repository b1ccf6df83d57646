package fake

import (
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

// ListContainerStats implements runtimeapi.RuntimeServiceServer: it tells how much memory those containers use of
// which an annotation says it.
func (r *Runtime) ListContainerStats(
	_ context.Context, req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			c.state != runtimeapi.ContainerState_CONTAINER_RUNNING || !c.packed.mayMatch(f.GetLabelSelector()) {
			continue
		}
		used, err := resource.ParseQuantity(c.behaviour().text("memory"))
		config := c.packed.get()
		if err != nil || !matches(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		bytes := &runtimeapi.UInt64Value{Value: uint64(max(0, used.Value()))} //nolint:gosec // not negative
		out.Stats = append(out.Stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{
				Id: c.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
			},
			Memory: &runtimeapi.MemoryUsage{Timestamp: time.Now().UnixNano(), UsageBytes: bytes, WorkingSetBytes: bytes},
		})
	}
	return out, nil
}
