package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"monoplane.dev/nodeagent/podstate"
)

// shuttingDown is the message of the Ready condition of a node that is being emptied, in kubelet's words.
const shuttingDown = "node is shutting down"

// comeBackTimeout is how long StopPods waits for an agent that does not know its pods yet: longer than the agent
// itself waits, while it comes back, for what should not run.
const comeBackTimeout = 30 * time.Second

// errUnknown says that nothing could be stopped, because it is not known what runs.
var errUnknown = errors.New("its pods could not be read, so those that run go on, for the next start to adopt")

// errEnded says that a stop was cut short.
var errEnded = errors.New("the agent has ended, so pods that run go on, for the next start to adopt")

// StopPods stops the processes of all pods, each with its pod's own grace period, and starts no more. The API
// objects stay, so that pods go on by their restartPolicy when an agent starts again. It returns when nothing
// runs, or ctx ends; the stop, once begun, goes on without its caller, and the node is not Ready any more. Report, if
// not nil, is called with the names of the pods that are waited for whenever they change, and with none at the end.
//
// It fails when the agent does not come to know its pods within half a minute, or ends before they have stopped: they
// go on then. What is not confirmed dead when its grace period and the runtime's time after it are over is given up:
// then it returns a *StuckError once nothing else runs. spec: design decision 13, SAFE-6
func (a *Agent) StopPods(ctx context.Context, report func(waiting []string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-a.ended:
			cancel(errEnded)
		case <-ctx.Done():
		}
	}()
	a.empty()
	if err := a.waitKnown(ctx); err != nil {
		return err
	}
	var last, waiting, stuck []string
	first := true
	err := a.waitUntil(ctx, func() bool {
		waiting, stuck = a.running()
		if report != nil && (first || !slices.Equal(waiting, last)) {
			report(waiting)
		}
		first, last = false, waiting
		return len(waiting) == len(stuck)
	})
	if err != nil {
		return context.Cause(ctx)
	}
	a.restVolumes(ctx, stuck)
	// How they ended should be written too, but need not: the next agent finds it out from the runtime.
	flush, cancelFlush := context.WithTimeout(ctx, flushTimeout)
	defer cancelFlush()
	_ = a.waitUntil(flush, func() bool { return !a.anyUnwritten() })
	if len(stuck) > 0 && ctx.Err() == nil {
		return &StuckError{Pods: stuck}
	}
	return context.Cause(ctx)
}

// empty begins to empty the node, once: nothing starts any more, and what runs is stopped.
func (a *Agent) empty() {
	a.mu.Lock()
	begun := a.emptying
	a.emptying = true
	if !begun {
		close(a.stopping)
	}
	a.mu.Unlock()
	if begun {
		return
	}
	a.noteStop()
	a.LookAtNode() // the Ready condition is another
	for _, w := range a.list() {
		w.post(podstate.NodeStopping{})
	}
}

// over returns an error when Run has ended.
func (a *Agent) over() error {
	select {
	case <-a.ended:
		return errEnded
	default:
		return nil
	}
}

// waitKnown waits for an agent that is coming back: until then it cannot tell what is to be stopped.
func (a *Agent) waitKnown(ctx context.Context) error {
	late := time.NewTimer(comeBackTimeout)
	defer late.Stop()
	select {
	case <-a.known:
		return a.over()
	case <-late.C:
		return fmt.Errorf("node %s: %w", a.cfg.NodeName, errUnknown)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restTimeout is how long StopPods waits for the volumes of one pod to be unmounted.
const restTimeout = 5 * time.Second

// restVolumes unmounts the volumes of pods that have stopped, so that the node's directory is one like any other.
func (a *Agent) restVolumes(ctx context.Context, stuck []string) {
	if a.volumes == nil {
		return
	}
	for _, w := range a.list() {
		if slices.Contains(stuck, name(w.pod())) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, restTimeout)
		if err := a.volumes.Rest(ctx, w.uid); err != nil {
			a.cfg.Logger.Warn("the volumes of a pod that has stopped stay mounted", "pod", name(w.pod()), "uid", w.uid,
				"error", err)
		}
		cancel()
	}
}

// flushTimeout is how long StopPods waits for the last writes of pods that have stopped.
const flushTimeout = 2 * time.Second

func (a *Agent) anyUnwritten() bool {
	unwritten := false
	for _, w := range a.list() {
		w.look(func(m *podstate.StateMachine) { unwritten = unwritten || m.Unwritten() })
	}
	return unwritten
}

// running returns the names of the pods of which something may run, sorted, and those among them that are stuck.
func (a *Agent) running() (all, stuck []string) {
	for _, w := range a.list() {
		w.look(func(m *podstate.StateMachine) {
			if m.Empty() {
				return
			}
			all = append(all, name(m.Pod()))
			if m.Stuck() != "" {
				stuck = append(stuck, name(m.Pod()))
			}
		})
	}
	slices.Sort(all)
	slices.Sort(stuck)
	return all, stuck
}
