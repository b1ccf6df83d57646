package nodeagent

import (
	"context"
	"slices"
	"time"

	"monoplane.dev/nodeagent/podstate"
)

// StopPods stops the processes of all pods, each with its pod's own grace period, and starts no more. The API
// objects stay, so that pods go on by their restartPolicy when an agent starts again. It returns when nothing
// runs, or ctx ends. Report, if not nil, is called with the names of the pods that are waited for whenever
// they change, and with none at the end. Run must be running. spec: design decision 13
func (a *Agent) StopPods(ctx context.Context, report func(waiting []string)) error {
	a.mu.Lock()
	a.emptying = true
	a.mu.Unlock()
	for _, w := range a.list() {
		w.post(podstate.NodeStopping{})
	}
	var last []string
	first := true
	err := a.waitUntil(ctx, func() bool {
		waiting := a.running()
		if report != nil && (first || !slices.Equal(waiting, last)) {
			report(waiting)
		}
		first, last = false, waiting
		return len(waiting) == 0
	})
	if err != nil {
		return err
	}
	// How they ended should be written too, but need not: the next agent finds it out from the runtime.
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = a.waitUntil(flush, func() bool { return !a.anyUnwritten() })
	return ctx.Err()
}

// flushTimeout is how long StopPods waits for the last writes of pods that have stopped.
const flushTimeout = 2 * time.Second

func (a *Agent) anyUnwritten() bool {
	unwritten := false
	for _, w := range a.list() {
		w.look(func(m *podstate.Machine) { unwritten = unwritten || m.Unwritten() })
	}
	return unwritten
}

// running returns the names of the pods of which something may run, sorted.
func (a *Agent) running() []string {
	var out []string
	for _, w := range a.list() {
		w.look(func(m *podstate.Machine) {
			if !m.Empty() {
				out = append(out, name(m.Pod()))
			}
		})
	}
	slices.Sort(out)
	return out
}
