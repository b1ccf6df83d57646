package host

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/wire"
)

const killSignal = syscall.SIGKILL

// bury ends a sandbox whose shim is dead, or whose machine was restarted: it kills what is left, then gives every
// container an end. The caller holds the sandbox's lock, so that nobody else writes its journals.
func (r *Runtime) bury(sb *sandbox) {
	r.mu.Lock()
	sb.ending = true
	orderly := sb.orderly
	list := sb.listLocked()
	r.mu.Unlock()

	code := int64(wire.CodeUnknown)
	message := "the machine was restarted"
	if sb.rec.bootID == r.bootID {
		code, message = wire.CodeShimLost, "the shim of the pod ended unexpectedly; what it had started was killed"
		reapShim(sb.dir)
		if !orderly && !r.killLeftovers(sb, list) {
			return // Closing; the next New goes on.
		}
		// The shim itself may take a moment to leave its group; what cannot be removed now is when the sandbox is.
		_ = sb.rec.group.Remove()
	}
	var ended []*container
	for _, c := range list {
		if r.conclude(c, code, message) {
			ended = append(ended, c)
		}
	}
	r.mu.Lock()
	close(sb.gone)
	r.mu.Unlock()
	for _, c := range ended {
		r.publish(sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	r.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// conclude takes in the last that the shim has recorded of a container and, if that is not its end, records one: the
// one that the shim has told, if its disk refused it, else an unknown one.
func (r *Runtime) conclude(c *container, code int64, message string) bool {
	r.mu.RLock()
	known := c.state
	r.mu.RUnlock()
	state, err := loadState(c.dir)
	if err != nil {
		r.log.Error("a container's journal cannot be read", "container", c.id, "error", err)
		state = wire.Container{ID: c.id, Phase: wire.Starting} // It may have run, so it must not be started.
	}
	if state.Phase < known.Phase {
		state = known
	}
	if state.Phase != wire.Created && state.Phase != wire.Exited {
		state.ID, state.Phase = c.id, wire.Exited
		state.ExitCode, state.Reason, state.Message = code, wire.ReasonUnknown, message
		state.FinishedAt = now()
		if state.StartedAt == 0 {
			state.StartedAt = state.FinishedAt
		}
	}
	if state.Phase == wire.Exited {
		r.recordExit(c, state)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.mergeLocked(state)
}

// recordExit writes the end of a container whose shim cannot any more, unless it is there already.
func (r *Runtime) recordExit(c *container, state wire.Container) {
	if last, err := loadState(c.dir); err == nil && last.Phase == wire.Exited {
		return
	}
	if err := wire.Append(filepath.Join(c.dir, shim.StateName), state.Encode(), true); err != nil {
		r.log.Error("an exit cannot be recorded", "container", c.id, "error", err)
	}
}

// killLeftovers kills what a dead shim has left until nothing is found any more: by cgroup, by marker, by the recorded
// pids of the containers and by descent from all of these. It returns false when the runtime is closed before that.
func (r *Runtime) killLeftovers(sb *sandbox, list []*container) bool {
	pause := time.Millisecond
	for {
		populated, err := sb.rec.group.Populated()
		if err == nil && populated {
			err = sb.rec.group.Kill()
		}
		if err != nil {
			r.log.Error("a cgroup cannot be emptied", "sandbox", sb.id, "error", err)
		}
		left, err := r.leftovers(sb, list)
		if err != nil {
			r.log.Error("processes cannot be listed", "sandbox", sb.id, "error", err)
		}
		if err == nil && !populated && len(left) == 0 {
			return true
		}
		for _, p := range left {
			_ = sys.Signal(p, killSignal)
		}
		select {
		case <-time.After(pause):
		case <-r.closing.Done():
			return false
		}
		pause = min(2*pause, retryTime)
	}
}

func (r *Runtime) leftovers(sb *sandbox, list []*container) ([]sys.Proc, error) {
	left, err := sys.Marked(sb.rec.marker, sandboxVariable+"="+sb.id)
	var roots []int
	for _, p := range left {
		roots = append(roots, p.PID)
	}
	r.mu.RLock()
	for _, c := range list {
		if p, err := sys.Stat(int(c.state.PID)); c.state.PID > 0 && err == nil && int64(p.Start) == c.state.Born {
			roots = append(roots, p.PID)
		}
	}
	r.mu.RUnlock()
	return sys.Descendants(roots), err
}

// reapShim reaps a dead shim that was a child of this process.
func reapShim(dir string) {
	p, ok := loadShim(dir)
	if !ok {
		return
	}
	if is, err := sys.Stat(p.PID); err == nil && is.Start == p.Start && is.PPID == os.Getpid() {
		_, _ = syscall.Wait4(p.PID, nil, 0, nil)
	}
}
