package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

const killSignal = syscall.SIGKILL

// leaveTime is how long a shim that has closed its connection may take to leave its group.
const leaveTime = time.Second

// bury ends a sandbox whose shim is dead, or whose machine was restarted: it kills what is left, then gives every
// container an end. The caller holds the sandbox's lock, so that nobody else writes its journals.
func (r *Runtime) bury(sb *sandbox) {
	r.mu.Lock()
	sb.ending = true
	orderly := sb.orderly
	list := sb.listLocked()
	r.mu.Unlock()

	code := int64(shimwire.CodeUnknown)
	message := "the machine was restarted"
	if sb.rec.bootID == r.bootID {
		code, message = shimwire.CodeShimLost, "the shim of the pod ended unexpectedly; what it had started was killed"
		if !r.reapShim(sb) || !orderly && !r.clear(sb, list, true) {
			return // Closing; the next New goes on.
		}
	}
	for _, c := range list {
		r.conclude(c, code, message)
	}
	if r.closing.Err() != nil {
		return
	}
	r.giveBack(sb)
	r.mu.Lock()
	defer r.mu.Unlock()
	sb.trouble = ""
	close(sb.gone)
	r.publishLocked(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// giveBack removes the cgroup and then the claim of a sandbox in which nothing runs: without its claim nobody would
// know the group of a cluster whose directory is gone.
func (r *Runtime) giveBack(sb *sandbox) {
	if sb.rec.bootID != r.bootID || sb.rec.group.Remove() == nil {
		r.unclaim(sb)
		return
	}
	r.start(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		_ = r.removeGroup(ctx, sb.rec.group) // What cannot be removed now is when the sandbox is.
		r.unclaim(sb)
	})
}

// conclude takes in the last that the shim has recorded of a container and, if that is not its end, records one: the
// one that the shim has told, if its disk refused it, else an unknown one.
func (r *Runtime) conclude(c *container, code int64, message string) {
	r.mu.RLock()
	known := c.state
	r.mu.RUnlock()
	state, err := loadState(c.dir)
	for pause := time.Duration(0); sys.Exhausted(err) && r.nap(&pause); {
		state, err = loadState(c.dir) // An exit code may be in it: to guess would lose that.
	}
	if r.closing.Err() != nil {
		return
	}
	if err != nil {
		r.log.Error("a container's journal cannot be read", "container", c.id, "error", err)
		state = shimwire.Container{ID: c.id, Phase: shimwire.Starting} // It may have run, so it must not be started.
	}
	if state.Phase < known.Phase {
		state = known
	}
	if state.Phase != shimwire.Created && state.Phase != shimwire.Exited {
		state.ID, state.Phase = c.id, shimwire.Exited
		state.ExitCode, state.Reason, state.Message = code, shimwire.ReasonUnknown, message
		state.FinishedAt = now()
		if state.StartedAt == 0 {
			state.StartedAt = state.FinishedAt
		}
	}
	if state.Phase == shimwire.Exited {
		r.recordExit(c, state)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeInLocked(c, state)
}

// recordExit writes the end of a container whose shim cannot any more, unless it is there already.
func (r *Runtime) recordExit(c *container, state shimwire.Container) {
	if last, err := loadState(c.dir); err == nil && last.Phase == shimwire.Exited {
		return
	}
	journal := filepath.Join(c.dir, shim.StateName)
	err := shimwire.Append(journal, state.Encode(), true)
	if err == nil || os.IsNotExist(err) { // it was removed meanwhile
		return
	}
	r.log.Error("an exit cannot be recorded yet", "container", c.id, "error", err)
	r.start(func() {
		pause := r.bounds.retry
		for r.nap(&pause) {
			if err := shimwire.Append(journal, state.Encode(), true); err == nil || os.IsNotExist(err) {
				return
			}
		}
	})
}

// clear kills what a dead shim has left until nothing is found any more: by cgroup, by marker, by the recorded pids of
// the containers and by descent from all of these. Without kill it only waits. It returns false when the runtime is
// closed before that. What cannot be killed keeps this sandbox, and no other one, from its end.
func (r *Runtime) clear(sb *sandbox, list []*container, kill bool) bool {
	const slow = 5 * time.Second
	var pause time.Duration
	said := time.Now()
	group := sb.rec.group
	if sb.rec.damaged {
		group = r.cgroups.Pod(sb.id)
	}
	for {
		populated, err := group.Populated()
		if err == nil && populated && kill {
			err = group.Kill()
		}
		left, unlisted := r.leftovers(sb, list)
		if r.closing.Err() != nil {
			return false
		}
		if err = errors.Join(err, unlisted); err == nil && !populated && len(left) == 0 {
			return true
		}
		for _, p := range left {
			if kill {
				_ = sys.Signal(p, killSignal)
			}
		}
		if !r.report(sb, left) && populated {
			r.mu.Lock()
			sb.trouble = "cgroup " + group.Unified + " is not empty"
			r.mu.Unlock()
		}
		if time.Since(said) > slow {
			said = time.Now().Add(time.Minute)
			r.log.Warn("what is left of a sandbox cannot be ended yet", "sandbox", sb.id, "left", describe(left), "error", err)
		}
		if !r.nap(&pause) {
			return false
		}
	}
}

func (r *Runtime) leftovers(sb *sandbox, list []*container) ([]sys.Proc, error) {
	left, err := sys.Marked(sb.rec.marker, sandboxVariable+"="+sb.id)
	var roots []int
	for _, p := range left {
		roots = append(roots, p.PID)
	}
	if sb.rec.damaged {
		roots = append(roots, recorded(sb)...)
	}
	for _, c := range list {
		r.mu.RLock()
		first := sys.Proc{PID: int(c.state.PID), Start: uint64(c.state.Born)}
		r.mu.RUnlock()
		if sys.IsAlive(first) {
			roots = append(roots, first.PID)
		}
	}
	left, unread := sys.Descendants(roots)
	return left, errors.Join(err, unread)
}

// recorded lists the live processes that the other files of a damaged sandbox name: its shim, and the process 1 of
// each container. Processes of images tell nobody which sandbox they are of, but by the marker that is lost.
func recorded(sb *sandbox) (pids []int) {
	if sys.IsAlive(sb.shim) {
		pids = append(pids, sb.shim.PID)
	}
	dirs, _ := os.ReadDir(filepath.Join(sb.dir, shim.Containers)) // Without it there is nothing to be known.
	for _, d := range dirs {
		state, err := loadState(filepath.Join(sb.dir, shim.Containers, d.Name()))
		if first := (sys.Proc{PID: int(state.PID), Start: uint64(state.Born)}); err == nil && sys.IsAlive(first) {
			pids = append(pids, first.PID)
		}
	}
	return pids
}

// reapShim reaps a dead shim that was a child of this process. It returns false when the runtime is closed before.
func (r *Runtime) reapShim(sb *sandbox) bool {
	p := sb.shim
	if p.PID == 0 {
		p, _ = loadShim(sb.dir)
	}
	var pause time.Duration
	for {
		is, err := sys.Stat(p.PID)
		if err != nil || p.PID == 0 || is.Start != p.Start || is.PPID != os.Getpid() {
			return true
		}
		if got, err := syscall.Wait4(p.PID, nil, syscall.WNOHANG, nil); got == p.PID || err != nil &&
			!errors.Is(err, syscall.EINTR) {
			return true
		}
		if !r.nap(&pause) {
			return false
		}
	}
}
