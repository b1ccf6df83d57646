package host

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// maxMessage bounds a termination message, in bytes (CTR-1).
const maxMessage = 4 << 10

// StartContainer starts process 1. A container is started at most once: asked again, it tells how the first time
// went. A command that cannot be executed is an error, and leaves the container exited with code 128, reason
// StartError.
//
// The call's deadline is the request's expiry: a shim that comes to it later leaves the container exited in the same
// way. After DeadlineExceeded, Canceled or Unavailable the outcome is unknown until ContainerStatus says Running or
// Exited, an event does, or RemoveContainer has succeeded.
//
// spec: SAFE-4
func (r *Runtime) StartContainer(
	ctx context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		r.mu.RUnlock()
		return nil, notFound("container", req.GetContainerId())
	}
	state, ready := c.state, c.sb.readyLocked()
	r.mu.RUnlock()
	if state.Phase == shimwire.Exited {
		if state.Reason == shimwire.ReasonStartError {
			return nil, failed("%s", state.Message)
		}
		return &runtimeapi.StartContainerResponse{}, nil
	}
	if !ready {
		return nil, wrongState("sandbox %s is not ready", c.sb.id)
	}
	conn, err := r.shimOf(ctx, c.sb)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, wrongState("sandbox %s has ended", c.sb.id)
	}
	call, err := c.startRequest()
	if err != nil {
		return nil, err
	}
	if call.Bundle == "" && call.AppArmor == "" {
		call.AppArmor, _ = r.defaultProfileOf(c)
	}
	if err := r.suits(c.sb, call); err != nil {
		return nil, err
	}
	if err := r.writeBundle(ctx, c); err != nil {
		return nil, err
	}
	makeHostPaths(c.rec.config)
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	if left <= 0 {
		return nil, callError(context.DeadlineExceeded)
	}
	call.Expiry = sys.BootTime() + int64(left)
	rec, err := conn.container(ctx, shimwire.Start, call.Encode())
	if err != nil {
		return nil, callError(err)
	}
	r.noteEvent(c.sb, rec)
	return &runtimeapi.StartContainerResponse{}, nil
}

// suits refuses a container whose shim would ignore what it needs, because it is an older program.
func (r *Runtime) suits(sb *sandbox, req *shimwire.StartRequest) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if req.NeedsVersion4() && sb.version < shimwire.Version4 {
		return wrongState("the pod was started by an older version of monoplane, whose shim knows neither terminals (tty) " +
			"nor sub paths of mounts: delete the pod, and create it anew")
	}
	if req.Bundle != "" && sb.version < shimwire.Bundles {
		return wrongState("the pod was started by an older version of monoplane, whose shim knows no images: delete the " +
			"pod, and create it anew")
	}
	if sb.version >= shimwire.Views || req.IsViewOptional() && !req.IsConfined() {
		return nil
	}
	return wrongState("%s", sb.noView)
}

// StopContainer sends the stop signal, and KILL to everything left after the timeout. It returns when nothing is
// left, or StopMargin after the timeout with an error that names what is: then the runtime goes on by itself. A later
// call can bring the deadline forward, never back (TERM-3).
//
// spec: SAFE-6
func (r *Runtime) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	if err := r.stopContainer(ctx, c, seconds(req.GetTimeout())); err != nil {
		return nil, err
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// seconds bounds what a client asks for to what a Duration holds.
func seconds(n int64) time.Duration {
	const most = 1 << 32 // More than a hundred years.
	return time.Duration(min(max(n, 0), most)) * time.Second
}

// errOverdue is the cause of a context that ends because a stop has taken longer than its grace and margin.
var errOverdue = errors.New("overdue")

// stopContainer returns after timeout and margin at the latest.
func (r *Runtime) stopContainer(ctx context.Context, c *container, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+r.bounds.margin, errOverdue)
	defer cancel()
	r.guard(c, timeout)
	err := r.askToStop(ctx, c, timeout)
	if err == nil {
		r.unguard(c)
		return nil
	}
	if errors.Is(context.Cause(ctx), errOverdue) {
		return r.stuck(c.sb)
	}
	return callError(err)
}

func (r *Runtime) askToStop(ctx context.Context, c *container, timeout time.Duration) error {
	begun := sys.BootTime() // By this a shim knows a stop that it is asked for again, because nobody knows what it heard.
	for {
		r.mu.RLock()
		phase := c.state.Phase
		r.mu.RUnlock()
		if phase == shimwire.Exited {
			return nil
		}
		conn, err := r.shimOf(ctx, c.sb)
		if err != nil {
			return err
		}
		if conn == nil {
			return nil // The sandbox is gone: nothing runs.
		}
		req := shimwire.StopRequest{ContainerID: c.id, Timeout: int64(timeout), Begun: begun}
		rec, err := conn.container(ctx, shimwire.Stop, req.Encode())
		switch {
		case err == nil:
			r.noteEvent(c.sb, rec)
			return nil
		case phase == shimwire.Created && !errors.Is(err, errConnLost) && ctx.Err() == nil:
			return nil // The shim does not know it: it was never started.
		case !errors.Is(err, errConnLost):
			return err
		}
		select { // Find out what became of the shim, then go on.
		case <-conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget makes sure that a container that is not running is never started. One that has exited never is: of that the
// shim is told if it listens, for the sake of its memory.
func (r *Runtime) forget(ctx context.Context, c *container) error {
	if isClosed(c.exited) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.bounds.hello)
		defer cancel()
		_ = r.askToForget(ctx, c)
		return nil
	}
	err := r.askToForget(ctx, c)
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		r.condemn(c.sb, false)
		return r.stuck(c.sb)
	}
	return callError(err)
}

func (r *Runtime) askToForget(ctx context.Context, c *container) error {
	for {
		conn, err := r.shimOf(ctx, c.sb)
		if conn == nil || err != nil {
			return err // nil when the sandbox is gone.
		}
		req := shimwire.ContainerRequest{ContainerID: c.id}
		if _, err = conn.container(ctx, shimwire.Forget, req.Encode()); !errors.Is(err, errConnLost) {
			return err
		}
		select { // Nobody knows whether it was heard: ask again.
		case <-conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ReopenContainerLog makes the shim open the log's path anew, after the agent has renamed the old file.
func (r *Runtime) ReopenContainerLog(
	ctx context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	conn, err := r.shimOf(ctx, c.sb)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, wrongState("container %s is not running", c.id)
	}
	body := shimwire.ContainerRequest{ContainerID: c.id}
	if _, err := conn.container(ctx, shimwire.Reopen, body.Encode()); err != nil {
		return nil, callError(err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// UpdatePodSandboxResources sets what the containers of a pod may use together, and what their pod is worth beside
// others where they compete. It fails if a limit cannot be set, or does not hold for a container that runs, and with
// Unimplemented if pods have no cgroup for it here; then what is set is not taken back. Containers made later are in
// the groups that it takes, also after a restart. What the containers need and the runtime's overhead are not added
// up: who asks has done so.
func (r *Runtime) UpdatePodSandboxResources(
	_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	ready := sb != nil && sb.readyLocked()
	r.mu.RUnlock()
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	if !ready {
		return nil, wrongState("sandbox %s is not ready", sb.id)
	}
	sb.creating.Lock()
	defer sb.creating.Unlock()
	now := proto.CloneOf(req.GetResources())
	if err := saveResources(sb.dir, now); err != nil {
		return nil, failed("the limits of the pod cannot be kept: %v", err)
	}
	var members []sys.Cgroup
	r.mu.Lock()
	sb.resources = now
	for _, c := range sb.containers {
		if c.stateLocked() != runtimeapi.ContainerState_CONTAINER_EXITED {
			members = append(members, c.rec.group)
		}
	}
	r.mu.Unlock()
	lim, _ := limits(now)
	unenforced, failures := r.cgroups.LimitPod(sb.rec.group, members, lim)
	switch {
	case len(failures) > 0:
		return nil, wrongState("%s", failures[0])
	case len(unenforced) > 0:
		return nil, status.Error(codes.Unimplemented, unenforced[0])
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// UpdateContainerResources changes the limits of a container. It fails if one that is to change has no cgroup although
// a container that is started now would have; one that stays as it is may be unenforced as before. Limits for which
// pods have no cgroup here are warnings of the container, as when it was made. What was set is told from then on, also
// after a restart.
func (r *Runtime) UpdateContainerResources(
	_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	r.mu.RLock()
	ready := c.sb.readyLocked()
	r.mu.RUnlock()
	if !ready {
		return nil, wrongState("sandbox %s is not ready", c.sb.id)
	}
	c.updating.Lock()
	defer c.updating.Unlock()
	r.mu.RLock()
	has := c.resourcesLocked()
	r.mu.RUnlock()
	was, _ := limits(has)
	lim, _ := limits(req.GetLinux()) // what it knows no limit for has been told when the container was made
	same, others := lim.Split(was)
	unenforced, unset := r.cgroups.Update(c.sb.rec.group, c.rec.group, same)
	changed, failures := r.cgroups.Update(c.sb.rec.group, c.rec.group, others)
	if len(failures) > 0 {
		return nil, wrongState("%s", failures[0])
	}
	now := proto.CloneOf(req.GetLinux())
	if err := saveResources(c.dir, now); err != nil {
		return nil, failed("the limits are set, and cannot be kept: %v", err)
	}
	r.mu.Lock()
	c.resources, c.unenforced = now, slices.Concat(unenforced, unset, changed)
	r.mu.Unlock()
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// message reads the termination message that the container left in a file of its own. One that the agent mounted is
// the agent's to read.
func (c *container) message() string {
	if c.messageFile() != c.ownMessageFile() {
		return ""
	}
	// The container may have put anything there: a FIFO would be waited for without end, a link followed anywhere.
	f, err := os.OpenFile(c.ownMessageFile(), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-maxMessage), maxMessage)) // its end, as for kubelets
	return string(b)
}

// callError gives an error of a call to a shim its code.
func callError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errConnLost):
		return unavailable("%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, shimwire.ErrTooLarge):
		return badRequest("%v", err)
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return failed("%v", err)
}
