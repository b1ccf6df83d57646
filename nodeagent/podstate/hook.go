package podstate

import (
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// HookKind says when a hook runs.
type HookKind uint8

// The kinds of hooks.
const (
	// PostStart runs after the container's process was started. Until it has ended the container does not count as
	// running, and nothing else of the pod is started.
	PostStart HookKind = iota
	// PreStop runs before the container's process is told to end.
	PreStop
)

// Of returns the container's hook of the kind, nil for none.
func (k HookKind) Of(c *corev1.Container) *corev1.LifecycleHandler {
	if k == PostStart {
		return c.GetLifecycle().GetPostStart()
	}
	return c.GetLifecycle().GetPreStop()
}

// hook is how far a hook of an instance has come.
//
//	        there is one       its time has come            it has ended, or its instance has
//	hookOver ─────► hookDue ───────────────────► hookRuns ──────────────────────────────────► hookOver
//	                                                │ postStart, when the container is stopped
//	                                                ▼
//	                                             hookCut
//
// postStart's time comes with the start of the process, preStop's with the stop of it. A preStop that has not ended
// with the grace period goes on for as long as its container does; what follows no longer waits for it.
type hook uint8

const (
	// hookOver means that there is nothing to wait for, since it has ended or there is none.
	hookOver hook = iota
	hookDue
	hookRuns
	// hookCut means that it was given up, so that its container never came to count as running.
	hookCut
)

// planHooks begins the postStart hooks of the instances that were started.
func (m *StateMachine) planHooks() {
	for i := range m.containers {
		c := &m.containers[i]
		if k := c.care; k != nil && c.State == Running && k.post == hookDue {
			k.post = hookRuns
			m.do(RunHook{Index: i, ID: c.ID, Kind: PostStart})
		}
	}
}

// posting reports whether container i runs and does not count as running, since its postStart hook has not ended well.
// spec: HOOK-2
func (m *StateMachine) posting(i int) bool {
	c := &m.containers[i]
	return c.State == Running && c.care != nil && (c.care.post != hookOver || c.care.doom == failedPostStart)
}

// anyPosting reports whether there is a container whose postStart hook has not ended well. Nothing is started beside
// it, as with kubelets.
func (m *StateMachine) anyPosting() bool {
	for i := range m.containers {
		if m.posting(i) {
			return true
		}
	}
	return false
}

// preStop runs the container's preStop hook, once for an instance, and reports whether TERM may follow now, and what
// is left of the grace period for it. There is no hook without a period. spec: HOOK-1, HOOK-2
func (m *StateMachine) preStop(c *container, period time.Duration, why string) (left time.Duration, now bool) {
	k := c.care
	if k == nil || c.State != Running {
		return period, true
	}
	if k.post == hookDue || k.post == hookRuns {
		if k.post == hookRuns {
			m.do(CancelHook{ID: k.id})
		}
		k.post = hookCut
	}
	end := m.now.Add(period)
	switch {
	case k.pre == hookDue && (period <= 0 || m.vanished || m.noGrace()):
		k.pre = hookOver
	case k.pre == hookDue:
		m.sayKilling(c, why)
		k.pre, k.term, k.announced = hookRuns, end, true
		m.do(RunHook{Index: m.index(c.Name), ID: c.ID, Kind: PreStop, Timeout: period + m.host.Policy.MinGrace})
	case !k.term.IsZero() && end.Before(k.term):
		k.term = end
	}
	if k.pre == hookRuns && m.now.Before(k.term) {
		m.due(k.term)
		return 0, false
	}
	if k.term.IsZero() {
		return period, true
	}
	return min(period, k.term.Sub(m.now)), true
}

// waitNoLonger lets TERM follow whatever the container's preStop hook does.
func (m *StateMachine) waitNoLonger(c *container) {
	switch k := c.care; {
	case k == nil:
	case k.pre == hookDue:
		k.pre = hookOver
	case k.pre == hookRuns && !k.term.IsZero():
		k.term = m.now
	}
}

// endHooks gives up the hooks of an instance that has ended. spec: HOOK-1
func (m *StateMachine) endHooks(k *care) {
	if k.post == hookRuns || k.pre == hookRuns {
		m.do(CancelHook{ID: k.id})
	}
	k.post, k.pre, k.term = hookOver, hookOver, time.Time{}
}

// hookRun takes in how a hook has ended.
func (m *StateMachine) hookRun(in HookRun) {
	c := m.cared(in.Index, in.ID)
	if c == nil {
		return
	}
	k := c.care
	switch {
	case in.Kind == PostStart && k.post == hookRuns:
		k.post = hookOver
		if in.Failed && k.doom == spared {
			k.doom = failedPostStart
			c.waiting, c.message = "PostStartHookError", "PostStartHook failed"
			m.do(Note{Warning: true, Reason: "FailedPostStartHook", Message: "PostStartHook failed", Container: c.Name})
		}
	case in.Kind == PreStop && k.pre == hookRuns:
		k.pre = hookOver
		if in.Failed {
			m.do(Note{Warning: true, Reason: "FailedPreStopHook", Message: "PreStopHook failed", Container: c.Name})
		}
	}
}
