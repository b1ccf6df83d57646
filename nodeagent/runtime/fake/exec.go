package fake

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// codeExecKilled is what a command ends with whose container has exited.
const codeExecKilled = 128 + 9

// ExecSync implements runtimeapi.RuntimeServiceServer: a command takes as long, and ends, as the pod's annotations
// say. It ends with its container.
func (r *Runtime) ExecSync(
	ctx context.Context, req *runtimeapi.ExecSyncRequest,
) (*runtimeapi.ExecSyncResponse, error) {
	if err := r.fault("ExecSync", req.GetContainerId()); err != nil {
		return nil, err
	}
	b, started, exited, err := r.beginExec(req.GetContainerId(), req.GetCmd())
	if err != nil {
		return nil, err
	}
	ran := time.Since(started)
	if d, ok := b.duration("exec-delay"); ok && d > 0 {
		limit := d
		if t := time.Duration(req.GetTimeout()) * time.Second; t > 0 {
			limit = min(d, t)
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-exited:
			return &runtimeapi.ExecSyncResponse{ExitCode: codeExecKilled}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if limit < d {
			return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out after %s", req.GetCmd(), limit)
		}
	}
	from, late := b.duration("exec-fails-after")
	until, early := b.duration("exec-fails-until")
	out := &runtimeapi.ExecSyncResponse{ExitCode: b.code("exec-code", 0)}
	if late && ran >= from || early && ran < until {
		out.ExitCode = 1
	}
	if out.ExitCode != 0 {
		out.Stdout = []byte(b.text("exec-output"))
	}
	return out, nil
}

// beginExec returns the behaviour of a running container towards a command, when it was started, and what closes at
// its exit.
func (r *Runtime) beginExec(id string, command []string) (behaviour, time.Time, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	switch {
	case c == nil:
		return behaviour{}, time.Time{}, nil, status.Errorf(codes.NotFound, "container %q does not exist", id)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return behaviour{}, time.Time{}, nil, status.Errorf(codes.FailedPrecondition, "container %q does not run", id)
	}
	if c.exited == nil {
		c.exited = make(chan struct{})
	}
	r.record("EXEC "+strings.Join(command, " "), c)
	b := c.behaviour()
	b.command = strings.Join(command, "-")
	return b, c.started, c.exited, nil
}
