package workloads_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/fake"
)

// machines are the simulated machines of a world, whose pods go on while no server runs.
type machines struct {
	mu  sync.Mutex
	all map[string]*machine
}

func newMachines() *machines { return &machines{all: map[string]*machine{}} }

// machine is the runtime of one.
type machine struct{ *fake.Runtime }

// Simulated implements monoplane.Runtime.
func (*machines) Simulated() bool { return true }

// Open implements monoplane.Runtime.
func (m *machines) Open(
	_ context.Context, node, _ string, _ *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[node] == nil {
		m.all[node] = &machine{fake.New(fake.Config{})}
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
