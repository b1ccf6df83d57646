package nodeagent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/lingering"
)

// StuckError says that something of these pods (namespace/name, sorted) is not confirmed dead although it was told to
// stop, its grace period is over, and the runtime had its time. The agent goes on trying for as long as it runs.
type StuckError struct{ Pods []string }

// Error names the pods.
func (e *StuckError) Error() string {
	return fmt.Sprintf("not confirmed dead: %s", strings.Join(e.Pods, ", "))
}

// condKillFailed is True on a node while something on it is not confirmed dead; the pods have a condition of the same
// name. It says nothing about whether the node is ready for others, and is there only once it has been needed.
const condKillFailed = lingering.KillFailed

// Stuck returns the pods (namespace/name, sorted) of which something is not confirmed dead although its grace period
// is over.
func (a *Agent) Stuck() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Values(a.stuck))
}

// setStuck notes that a pod is stuck, or no longer. The caller holds the worker's lock.
func (a *Agent) setStuck(w *worker, why string) {
	pod := name(w.m.Pod())
	a.mu.Lock()
	_, was := a.stuck[w.uid]
	switch {
	case why != "" && !w.closed:
		if a.stuck == nil {
			a.stuck = make(map[string]string)
		}
		a.stuck[w.uid] = pod
	case was:
		delete(a.stuck, w.uid)
	}
	a.mu.Unlock()
	switch {
	case why != "" && !was:
		a.cfg.Logger.Warn("something of a pod is not confirmed dead", "pod", pod, "uid", w.uid, "error", why)
	case why == "" && was:
		a.cfg.Logger.Warn("a pod that was stuck is dead", "pod", pod, "uid", w.uid)
	}
}

// stuckCondition says on the node which pods are stuck.
func (a *Agent) stuckCondition(s *corev1.NodeStatus) {
	const most = 10 // named
	pods := a.Stuck()
	switch {
	case len(pods) > 0:
		more := ""
		if n := len(pods) - most; n > 0 {
			pods, more = pods[:most], fmt.Sprintf(" and %d more", n)
		}
		setNodeCondition(s, condKillFailed, "True", "FailedKillPod", "not confirmed dead: "+strings.Join(pods, ", ")+more)
	case nodeCondition(s, condKillFailed) != nil:
		setNodeCondition(s, condKillFailed, "False", "PodsKilled", "all that was stopped on the node is dead")
	}
}
