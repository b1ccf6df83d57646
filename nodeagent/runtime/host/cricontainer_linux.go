package host

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// CreateContainer records a container; nothing of it runs. Asked again with the same configuration before it was
// started, it returns the same container.
func (r *Runtime) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	config := req.GetConfig()
	image, reference, err := r.imageFor(config)
	if err == nil && image == "" {
		err = checkContainer(config)
	}
	if err == nil {
		config, err = r.withStopSignal(config, image)
	}
	if err != nil {
		return nil, err
	}
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	r.mu.RUnlock()
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	sb.creating.Lock()
	defer sb.creating.Unlock()
	id, err := r.twin(sb, config)
	if id != "" || err != nil {
		return &runtimeapi.CreateContainerResponse{ContainerId: id}, err
	}
	id, _ = newID()
	c := sb.newContainer(id, &containerRecord{config: proto.Clone(config).(*runtimeapi.ContainerConfig),
		createdAt: now(), image: image, reference: reference})
	if err := r.checkBundle(c); err != nil {
		return nil, err
	}
	start, err := c.startRequest()
	if err != nil {
		return nil, err
	}
	if len(start.Encode()) > shimwire.MaxFrame/2 {
		return nil, badRequest("command and environment are larger than %d MiB", shimwire.MaxFrame/2>>20)
	}
	if err := r.makeContainer(c); err != nil {
		return nil, makingFailed("container", err)
	}
	r.mu.Lock()
	ready := sb.readyLocked()
	if ready {
		r.enterLocked(c)
		r.publishLocked(sb, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	}
	r.mu.Unlock()
	if !ready {
		return nil, wrongState("sandbox %s is not ready any more", sb.id)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// twin looks for a container of the same name and attempt in the sandbox.
func (r *Runtime) twin(sb *sandbox, config *runtimeapi.ContainerConfig) (id string, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !sb.readyLocked() {
		return "", wrongState("sandbox %s is not ready", sb.id)
	}
	for _, c := range sb.containers {
		if !proto.Equal(c.rec.config.GetMetadata(), config.GetMetadata()) {
			continue
		}
		if c.stateLocked() == runtimeapi.ContainerState_CONTAINER_CREATED && proto.Equal(c.rec.config, config) {
			return c.id, nil
		}
		return "", taken("container %s of this name and attempt exists", c.id)
	}
	return "", nil
}

// makeContainer makes the container's cgroups and files.
func (r *Runtime) makeContainer(c *container) error {
	r.mu.RLock()
	noView, pod := c.sb.noView, c.sb.resources
	r.mu.RUnlock()
	res := c.rec.config.GetLinux().GetResources()
	lim, warnings := limits(res)
	whole, _ := limits(pod) // what it knows no limit for, nobody has asked the runtime for
	group, unenforced, err := r.cgroups.MakeContainer(c.sb.rec.group, c.id, lim, whole)
	if err != nil {
		return err
	}
	if c.rec.image != "" {
		group = r.cgroups.Spread(c.sb.rec.group, c.id, group)
		c.rec.group, c.rec.warnings = group, slices.Concat(warnings, unenforced, r.groupsNotGiven(c), r.unprofiled(c))
	} else {
		c.rec.group, c.rec.warnings = group, slices.Concat(warnings, unenforced, c.unhonoured(noView), r.unprofiled(c))
	}
	if log := c.logPath(); log != "" {
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			return errors.Join(err, group.Remove())
		}
	}
	err = publish(filepath.Dir(c.dir), c.id,
		func(draft string) error { return c.rec.save(filepath.Join(draft, configName)) })
	if err != nil {
		return errors.Join(err, group.Remove())
	}
	return nil
}

// RemoveContainer removes a container, and kills it first if it runs. Once it has succeeded the container can never
// be started any more, whatever was asked before. It takes StopMargin at most. Removing what does not exist is no
// error.
func (r *Runtime) RemoveContainer(
	ctx context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.bounds.margin, errOverdue)
	defer cancel()
	for {
		if err := r.stopContainer(ctx, c, 0); err != nil {
			return nil, err
		}
		err := r.forget(ctx, c)
		if err == nil {
			break
		}
		// A start that was on its way has come between the two: stop that.
		if status.Code(err) != codes.Unknown || ctx.Err() != nil {
			return nil, err
		}
	}
	if err := c.rec.group.Remove(); err != nil {
		return nil, failed("cannot remove the container's cgroup: %v", err)
	}
	if err := r.releaseRoot(ctx, c); err != nil {
		return nil, err
	}
	if err := withdraw(filepath.Join(c.sb.dir, shim.Containers), c.id); err != nil {
		return nil, failed("cannot remove the container: %v", err)
	}
	r.mu.Lock()
	r.dropLocked(c)
	r.publishLocked(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	r.mu.Unlock()
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ContainerStatus implements CRI. What was asked for and is not done is in the info under "warnings", verbose or not.
func (r *Runtime) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		r.mu.RUnlock()
		return nil, notFound("container", req.GetContainerId())
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: c.statusLocked(), Info: c.infoLocked()}
	r.mu.RUnlock()
	if resp.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED && resp.Status.Message == "" {
		resp.Status.Message = c.message()
	}
	return resp, nil
}

// ListContainers implements CRI.
func (r *Runtime) ListContainers(
	_ context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	f := req.GetFilter()
	resp := &runtimeapi.ListContainersResponse{}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sb.id ||
			f.GetState() != nil && f.GetState().GetState() != c.stateLocked() ||
			!labelsMatch(c.rec.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		st := c.briefStatusLocked()
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sb.id, Metadata: st.GetMetadata(), Image: st.GetImage(), ImageRef: st.GetImageRef(),
			ImageId: st.GetImageId(), State: st.GetState(), CreatedAt: st.GetCreatedAt(), Labels: st.GetLabels(),
			Annotations: st.GetAnnotations(),
		})
	}
	slices.SortFunc(resp.Containers, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id)) // Newest first.
	})
	return resp, nil
}
