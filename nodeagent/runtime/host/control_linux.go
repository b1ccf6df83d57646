package host

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/wire"
)

// maxMessage bounds a termination message, in bytes (CTR-1).
const maxMessage = 4 << 10

// StartContainer starts process 1. A container is started at most once: asked again, it tells how the first time went.
// A command that cannot be executed is an error, and leaves the container exited with code 128, reason StartError.
func (r *Runtime) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		r.mu.RUnlock()
		return nil, notFound("container", req.GetContainerId())
	}
	state, ready := c.state, c.sb.readyLocked()
	r.mu.RUnlock()
	if state.Phase == wire.Exited {
		if state.Reason == wire.ReasonStartError {
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
	rec, err := conn.container(ctx, wire.Start, c.startRequest().Encode())
	if err != nil {
		return nil, callError(err)
	}
	r.noteEvent(c.sb, rec)
	return &runtimeapi.StartContainerResponse{}, nil
}

// StopContainer sends the stop signal, and KILL to everything left after the timeout. It returns when nothing is left.
// A later call can bring the deadline forward, never back (TERM-3).
func (r *Runtime) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
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
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}

func (r *Runtime) stopContainer(ctx context.Context, c *container, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		r.mu.RLock()
		phase := c.state.Phase
		r.mu.RUnlock()
		if phase == wire.Exited {
			return nil
		}
		conn, err := r.shimOf(ctx, c.sb)
		if err != nil {
			return err
		}
		if conn == nil {
			return nil // The sandbox is gone: nothing runs.
		}
		left := timeout
		if timeout > 0 {
			left = max(time.Until(deadline), 1)
		}
		req := wire.StopRequest{ContainerID: c.id, Timeout: int64(left)}
		rec, err := conn.container(ctx, wire.Stop, req.Encode())
		switch {
		case err == nil:
			r.noteEvent(c.sb, rec)
			return nil
		case phase == wire.Created && !errors.Is(err, errConnLost) && ctx.Err() == nil:
			return nil // The shim does not know it: it was never started.
		case !errors.Is(err, errConnLost):
			return callError(err)
		}
		select { // Find out what became of the shim, then go on.
		case <-conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget makes sure that a container that is not running is never started.
func (r *Runtime) forget(ctx context.Context, c *container) error {
	conn, err := r.shimOf(ctx, c.sb)
	if err != nil || conn == nil {
		return err
	}
	req := wire.ContainerRequest{ContainerID: c.id}
	_, err = conn.container(ctx, wire.Forget, req.Encode())
	return callError(err)
}

// ReopenContainerLog makes the shim open the log's path anew, after the agent has renamed the old file.
func (r *Runtime) ReopenContainerLog(ctx context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	conn, err := r.shimOf(ctx, c.sb)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, wrongState("container %s is not running", c.id)
	}
	body := wire.ContainerRequest{ContainerID: c.id}
	if _, err := conn.container(ctx, wire.Reopen, body.Encode()); err != nil {
		return nil, callError(err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// UpdateContainerResources changes the limits of a container as far as its cgroups reach.
func (r *Runtime) UpdateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.RLock()
	c := r.containers[req.GetContainerId()]
	r.mu.RUnlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	lim, warnings := limits(req.GetLinux())
	warnings = append(warnings, r.cgroups.Update(c.sb.rec.group, c.rec.group, lim)...)
	if len(warnings) > 0 {
		return nil, wrongState("%s", warnings[0])
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// message reads the termination message that the container left in a file of its own. One that the agent mounted is
// the agent's to read.
func (c *container) message() string {
	if c.messageFile() != c.ownMessageFile() {
		return ""
	}
	f, err := os.Open(c.ownMessageFile())
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxMessage))
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
		return err
	}
	return failed("%v", err)
}
