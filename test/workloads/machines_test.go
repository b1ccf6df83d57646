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
	mu    sync.Mutex
	all   map[string]*machine
	loads map[string]uint64 // in thousandths of a cpu, by app
	busy  map[string]string // the app of each container that runs, by its id
}

func newMachines() *machines {
	return &machines{all: map[string]*machine{}, loads: map[string]uint64{}, busy: map[string]string{}}
}

// machine is the runtime of one.
type machine struct {
	*fake.Runtime

	of *machines
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

// load says what the pods of an app have to do.
func (m *machines) load(app, amount string) error {
	q, err := resource.ParseQuantity(amount)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads[app] = uint64(q.MilliValue()) //nolint:gosec // not negative
	return nil
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

// apps returns the ids of the running containers of each app on all machines, and the answer of each by id.
func (m *machines) apps(ctx context.Context) (map[string]int, error) {
	out := make(map[string]int)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		list, err := one.running(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			out[appOf(c)]++
		}
	}
	return out, nil
}

// appOf returns the app of a container by its pod's name, NAME-... of a ReplicaSet.
func appOf(c *runtimeapi.Container) string {
	name, _, _ := strings.Cut(c.GetLabels()["io.kubernetes.pod.name"], "-")
	return name
}

func (m *machine) running(ctx context.Context) ([]*runtimeapi.Container, error) {
	list, err := m.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	return list.GetContainers(), err
}

// ListContainerStats implements runtimeapi.RuntimeServiceServer: the pods of an app share its load.
func (m *machine) ListContainerStats(
	ctx context.Context, _ *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	shares, err := m.of.apps(ctx)
	if err != nil {
		return nil, err
	}
	own, err := m.running(ctx)
	out := &runtimeapi.ListContainerStatsResponse{}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	for _, c := range own {
		load := m.of.loads[appOf(c)] * 1_000_000 / uint64(max(1, shares[appOf(c)])) //nolint:gosec // not negative
		out.Stats = append(out.Stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{
				Id: c.GetId(), Metadata: c.GetMetadata(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
			},
			Cpu: &runtimeapi.CpuUsage{
				Timestamp: time.Now().UnixNano(), UsageNanoCores: &runtimeapi.UInt64Value{Value: load},
			},
			Memory: &runtimeapi.MemoryUsage{
				Timestamp: time.Now().UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{Value: 64 << 20},
			},
		})
	}
	return out, err
}
