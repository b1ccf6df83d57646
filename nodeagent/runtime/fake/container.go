package fake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is guarded by Runtime.mu.
//
//	created --StartContainer--> running --exit-after, TERM or KILL--> exited
type container struct {
	id       string
	sandbox  *sandbox
	packed   packed[runtimeapi.ContainerConfig, *runtimeapi.ContainerConfig]
	state    runtimeapi.ContainerState
	starting bool
	created  time.Time
	started  time.Time
	finished time.Time
	code     int32
	termed   bool          // TERM was sent
	exit     *time.Timer   // of exit-after, then of stop-after
	exited   chan struct{} // made when somebody waits for the exit
}

// CreateContainer implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	if err := r.fault("CreateContainer", cfg.GetMetadata().GetName()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q does not exist", req.GetPodSandboxId())
	}
	if !s.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not ready", s.id)
	}
	logPath := ""
	if dir := req.GetSandboxConfig().GetLogDirectory(); dir != "" && cfg.GetLogPath() != "" {
		logPath = filepath.Join(dir, cfg.GetLogPath())
	}
	// Only what is asked for later is kept: there may be very many containers.
	c := &container{id: newID(), sandbox: s, created: time.Now()}
	err := c.packed.put(&runtimeapi.ContainerConfig{
		Metadata: cfg.GetMetadata(), Image: cfg.GetImage(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		LogPath: logPath, Mounts: cfg.GetMounts(), Linux: keptResources(cfg.GetLinux().GetResources()),
	})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the container's configuration cannot be encoded: %v", err)
	}
	if text := c.behaviour().text("create-error"); text != "" {
		return nil, status.Error(codes.Unknown, text)
	}
	for _, other := range s.containers {
		if has := other.packed.get().GetMetadata(); has.GetName() == cfg.GetMetadata().GetName() &&
			has.GetAttempt() == cfg.GetMetadata().GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "container %s attempt %d exists as %s",
				cfg.GetMetadata().GetName(), cfg.GetMetadata().GetAttempt(), other.id)
		}
	}
	s.containers = append(s.containers, c)
	r.containers[c.id] = c
	r.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, s)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) StartContainer(
	_ context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	if err := r.fault("StartContainer", req.GetContainerId()); err != nil {
		return nil, err
	}
	c, err := r.beginStart(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	b := c.behaviour()
	if d, ok := b.duration("start-delay"); ok && d > 0 {
		time.Sleep(d)
	}
	if text := b.text("start-error"); text != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.code = 128
		r.exit(c)
		return nil, status.Error(codes.Unknown, text)
	}
	if err := writeLog(c, b.text("log")); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.sandbox.ready || r.containers[c.id] != c {
		return nil, status.Errorf(codes.FailedPrecondition,
			"container %q was removed, or its sandbox stopped, while it started", c.id)
	}
	c.starting = false
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now()
	r.record("START", c)
	r.exitByItself(c, b)
	r.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandbox)
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *Runtime) beginStart(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "container %q does not exist", id)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED || c.starting {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q was started before", id)
	}
	if !c.sandbox.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not ready", c.sandbox.id)
	}
	c.starting = true
	return c, nil
}

// writeLog writes the line of the annotation "log" in the CRI log format.
func writeLog(c *container, line string) error {
	if line == "" {
		return nil
	}
	path := c.packed.get().GetLogPath()
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return status.Errorf(codes.Internal, "log directory: %v", err)
	}
	text := fmt.Sprintf("%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return status.Errorf(codes.Internal, "log: %v", err)
	}
	return nil
}

// RemoveContainer implements runtimeapi.RuntimeServiceServer: it kills and forgets the container. Removing
// one that does not exist succeeds.
func (r *Runtime) RemoveContainer(
	_ context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	if err := r.fault("RemoveContainer", req.GetContainerId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	r.kill(c)
	delete(r.containers, c.id)
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(o *container) bool { return o == c })
	r.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandbox)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ReopenContainerLog implements runtimeapi.RuntimeServiceServer; a fake container has no open log file.
func (r *Runtime) ReopenContainerLog(
	context.Context, *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ContainerStatus implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "container %q does not exist", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ListContainers implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) ListContainers(
	_ context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			f.GetState() != nil && f.GetState().GetState() != c.state || !c.packed.mayMatch(f.GetLabelSelector()) {
			continue
		}
		config := c.packed.get()
		if !matches(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: config.GetMetadata(), Image: config.GetImage(),
			ImageRef: config.GetImage().GetImage(), State: c.state, CreatedAt: c.created.UnixNano(),
			Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
			ImageId: config.GetImage().GetImage(),
		})
	}
	return out, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	config := c.packed.get()
	s := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: config.GetMetadata(), State: c.state, CreatedAt: c.created.UnixNano(),
		Image: config.GetImage(), ImageRef: config.GetImage().GetImage(), ImageId: config.GetImage().GetImage(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(),
		LogPath: config.GetLogPath(), Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
	}
	if !c.started.IsZero() {
		s.StartedAt = c.started.UnixNano()
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.FinishedAt, s.ExitCode, s.Reason = c.finished.UnixNano(), c.code, "Completed"
		if c.code != 0 {
			s.Reason = "Error"
		}
	}
	return s
}
