package fake

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
)

// Exit codes of a process that a signal ended.
const (
	codeTerm = 128 + 15
	codeKill = 128 + 9
)

// StopContainer implements runtimeapi.RuntimeServiceServer: TERM, then KILL after the timeout. It returns once
// the container has exited. Calls may overlap: TERM is sent once and the earliest KILL wins (spec TERM-3).
// Stopping a container that does not exist, or does not run, succeeds and changes nothing: one that was only created
// may be started afterwards, as with other runtimes.
func (r *Runtime) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	if err := r.fault("StopContainer", req.GetContainerId()); err != nil {
		return nil, err
	}
	exited := r.terminate(req.GetContainerId(), req.GetTimeout() > 0)
	if exited == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	deadline := time.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
	defer deadline.Stop()
	select {
	case <-exited:
		return &runtimeapi.StopContainerResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-deadline.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[req.GetContainerId()]; c != nil {
		r.kill(c)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// terminate sends TERM, if asked to, and returns what closes at the exit; nil when the container does not run.
func (r *Runtime) terminate(id string, term bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil
	}
	if c.exited == nil {
		c.exited = make(chan struct{})
	}
	exited := c.exited
	if !term || c.termed {
		return exited
	}
	c.termed = true
	r.record("TERM", c)
	b := c.behaviour()
	if b.flag("ignore-term") {
		return exited
	}
	c.code = b.code("stop-code", codeTerm)
	d, _ := b.duration("stop-after")
	r.exitLater(c, d)
	return exited
}

// exitByItself makes a container that has started exit when it is to, if it is. The caller holds the lock.
func (r *Runtime) exitByItself(c *container, b behaviour) {
	after, ok := b.duration("exit-after")
	if !ok && r.cfg.FinishAfter > 0 {
		after = r.cfg.FinishAfter
		ok = c.packed.get().GetAnnotations()[criconfig.AnnotationFinishes] == "true"
	}
	if ok {
		c.code = b.code("exit-code", 0)
		r.exitLater(c, max(0, time.Until(c.started.Add(after))))
	}
}

// exitLater makes the container exit after d with the code it has. The caller holds the lock.
func (r *Runtime) exitLater(c *container, d time.Duration) {
	if c.exit != nil {
		c.exit.Stop()
	}
	if d == 0 {
		r.exit(c)
		return
	}
	c.exit = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exit(c)
	})
}

// kill makes the container exit now, as KILL does, if it runs. The caller holds the lock.
func (r *Runtime) kill(c *container) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	r.record("KILL", c)
	c.code = codeKill
	r.exit(c)
}

// exit records the end of the container's process. The caller holds the lock.
func (r *Runtime) exit(c *container) {
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	if c.exit != nil {
		c.exit.Stop()
		c.exit = nil
	}
	c.state, c.finished = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now()
	r.record("EXIT", c)
	if c.exited != nil {
		close(c.exited)
	}
	r.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandbox)
}

// Reboot ends everything that runs, as a reboot of the machine does: containers exit with 137 and sandboxes
// are no longer ready. Entries stay.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		r.stopSandbox(s)
	}
}

func (r *Runtime) record(what string, c *container) {
	if r.cfg.Journal == nil {
		return
	}
	pod, config := c.sandbox.config().GetMetadata(), c.packed.get()
	r.cfg.Journal(Entry{
		Time: time.Now(), What: what, Namespace: pod.GetNamespace(), Pod: pod.GetName(), UID: pod.GetUid(),
		Container: config.GetMetadata().GetName(), Attempt: config.GetMetadata().GetAttempt(),
	})
}
