package fake

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod's sandbox. Its fields are guarded by Runtime.mu; maps are shared with the request that
// made it and are never written.
type sandbox struct {
	id     string
	packed packed[runtimeapi.PodSandboxConfig, *runtimeapi.PodSandboxConfig]
	// annotations are the pod's own, and so not packed.
	annotations map[string]string
	created     time.Time
	ready       bool
	ip          string
	containers  []*container // in order of creation, without removed ones
}

// newID returns an id in the style of container runtimes: lower case, not guessable, unique.
func newID() string { return strings.ToLower(rand.Text()) }

// RunPodSandbox implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) RunPodSandbox(
	_ context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	if err := r.fault("RunPodSandbox", cfg.GetMetadata().GetUid()); err != nil {
		return nil, err
	}
	if cfg.GetMetadata().GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "a sandbox needs metadata with a uid")
	}
	if h := req.GetRuntimeHandler(); h != "" {
		return nil, status.Errorf(codes.FailedPrecondition,
			"no runtime handler %q is configured: a simulated runtime has none", h)
	}
	if text := cfg.GetAnnotations()[Prefix+"sandbox-error"]; text != "" {
		return nil, status.Error(codes.Unknown, text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: newID(), created: time.Now(), ready: true, ip: r.nextIP(), annotations: cfg.GetAnnotations()}
	err := s.packed.put(&runtimeapi.PodSandboxConfig{
		Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(),
	})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the sandbox's configuration cannot be encoded: %v", err)
	}
	r.sandboxes[s.id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// StopPodSandbox implements runtimeapi.RuntimeServiceServer: it kills what runs in the sandbox. Stopping one
// that does not exist succeeds.
func (r *Runtime) StopPodSandbox(
	_ context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	if err := r.fault("StopPodSandbox", req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[req.GetPodSandboxId()]; s != nil {
		r.stopSandbox(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox kills the sandbox's containers. The caller holds the lock.
func (r *Runtime) stopSandbox(s *sandbox) {
	for _, c := range s.containers {
		r.kill(c)
	}
	if s.ready {
		s.ready = false
		r.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, s.id, s)
	}
}

// RemovePodSandbox implements runtimeapi.RuntimeServiceServer: it stops and forgets the sandbox and its
// containers. Removing one that does not exist succeeds.
func (r *Runtime) RemovePodSandbox(
	_ context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	if err := r.fault("RemovePodSandbox", req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.stopSandbox(s)
	for _, c := range s.containers {
		delete(r.containers, c.id)
	}
	s.containers = nil
	delete(r.sandboxes, s.id)
	r.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, s.id, s)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q does not exist", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: s.status(), ContainersStatuses: s.containerStatuses(), Timestamp: time.Now().UnixNano(),
	}, nil
}

// ListPodSandbox implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) ListPodSandbox(
	_ context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id ||
			f.GetState() != nil && f.GetState().GetState() != s.state() || !s.packed.mayMatch(f.GetLabelSelector()) {
			continue
		}
		config := s.config()
		if !matches(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: config.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(),
			Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		})
	}
	return out, nil
}

func (s *sandbox) config() *runtimeapi.PodSandboxConfig {
	c := s.packed.get()
	c.Annotations = s.annotations
	return c
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	config := s.config()
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: config.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Labels:  config.GetLabels(), Annotations: config.GetAnnotations(),
	}
}

func (s *sandbox) containerStatuses() []*runtimeapi.ContainerStatus {
	out := make([]*runtimeapi.ContainerStatus, len(s.containers))
	for i, c := range s.containers {
		out[i] = c.status()
	}
	return out
}

// matches reports whether labels carry every pair of want.
func matches(want, labels map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}
