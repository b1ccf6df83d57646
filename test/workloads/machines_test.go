package workloads_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// machines are the simulated machines of a world, whose pods go on while no server runs.
type machines struct {
	mu  sync.Mutex
	all map[string]*machine
	// loads says how much cpu all pods of an app use together.
	loads map[string]resource.Quantity
}

func newMachines() *machines {
	return &machines{all: map[string]*machine{}, loads: map[string]resource.Quantity{}}
}

// machine is the runtime of one.
type machine struct {
	*fake.Runtime

	machines *machines
}

// Simulated implements monoplane.Runtime.
func (*machines) Simulated() bool { return true }

// Open implements monoplane.Runtime.
func (m *machines) Open(
	_ context.Context, node, _ string, _ *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[node] == nil {
		m.all[node] = &machine{fake.New(fake.Config{}), m}
	}
	s := inproc.NewServer(nil, nil)
	runtimeapi.RegisterRuntimeServiceServer(s, m.all[node])
	runtimeapi.RegisterImageServiceServer(s, m.all[node])
	return s.Conn(inproc.Detached()), func() error { s.Stop(); return nil }, nil
}

// RunPodSandbox implements runtimeapi.RuntimeServiceServer: what is said for a Job's index counts for its pods.
func (m *machine) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	own := req.GetConfig().GetAnnotations()
	if index, ok := own["batch.kubernetes.io/job-completion-index"]; ok {
		own = maps.Clone(own)
		for key, value := range req.GetConfig().GetAnnotations() {
			if what, ok := strings.CutPrefix(key, "index-"+index+".workloads/"); ok {
				own[fake.Prefix+what] = value
			}
		}
		req.Config.Annotations = own
	}
	return m.Runtime.RunPodSandbox(ctx, req)
}

// load says how much cpu the pods of an app use from now on, "unknown" for what nobody knows.
func (m *machines) load(app, amount string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if amount == "unknown" {
		delete(m.loads, app)
		return nil
	}
	q, err := resource.ParseQuantity(amount)
	m.loads[app] = q
	return err
}

// running returns the containers of an app's pods that run on the machine.
func (m *machine) running(ctx context.Context, app string) ([]*runtimeapi.Container, error) {
	boxes, err := m.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": app}}})
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Container
	for _, box := range boxes.GetItems() {
		list, err := m.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			PodSandboxId: box.GetId(),
			State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil {
			return nil, err
		}
		out = append(out, list.GetContainers()...)
	}
	return out, nil
}

// ListContainerStats implements runtimeapi.RuntimeServiceServer: all that run for an app share its load.
func (m *machine) ListContainerStats(
	ctx context.Context, _ *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	m.machines.mu.Lock()
	defer m.machines.mu.Unlock()
	out := &runtimeapi.ListContainerStatsResponse{}
	for app, load := range m.machines.loads {
		sharing := 0
		for _, each := range m.machines.all {
			all, err := each.running(ctx, app)
			if err != nil {
				return nil, err
			}
			sharing += len(all)
		}
		own, err := m.running(ctx, app)
		if err != nil {
			return nil, err
		}
		for _, c := range own {
			out.Stats = append(out.Stats, &runtimeapi.ContainerStats{
				Attributes: &runtimeapi.ContainerAttributes{Id: c.GetId(), Metadata: c.GetMetadata(), Labels: c.GetLabels()},
				Cpu: &runtimeapi.CpuUsage{Timestamp: time.Now().UnixNano(), UsageNanoCores: &runtimeapi.UInt64Value{
					Value: uint64(load.ScaledValue(resource.Nano)) / uint64(sharing), //nolint:gosec // not negative
				}},
			})
		}
	}
	return out, nil
}

// missing begins the names of images that do not exist.
const missing = "missing"

// ImageStatus implements runtimeapi.ImageServiceServer.
func (m *machine) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if strings.HasPrefix(req.GetImage().GetImage(), missing) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return m.Runtime.ImageStatus(ctx, req)
}

// PullImage implements runtimeapi.ImageServiceServer.
func (m *machine) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	if name := req.GetImage().GetImage(); strings.HasPrefix(name, missing) {
		return nil, status.Error(codes.NotFound, fmt.Sprintf("image %s: not found", name))
	}
	return m.Runtime.PullImage(ctx, req)
}
