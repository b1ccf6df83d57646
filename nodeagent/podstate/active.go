package podstate

import (
	"fmt"
	"slices"
)

// sandbox returns the pod's current sandbox, nil for none.
func (m *StateMachine) sandbox() *box {
	if len(m.sandboxes) == 0 {
		return nil
	}
	return &m.sandboxes[len(m.sandboxes)-1]
}

// ready reports whether containers can be started.
func (m *StateMachine) ready() bool {
	s := m.sandbox()
	return s != nil && s.Ready
}

// planActive keeps a sandbox and the containers in it running.
func (m *StateMachine) planActive() {
	m.removeDead()
	m.planGrant()
	if !m.ready() {
		m.observeNow()
		m.planSandbox()
		return
	}
	stops := m.settleStrays()
	if m.planReset() {
		m.observeNow()
		return
	}
	m.planActuation()
	stops = m.replaceChanged() || stops
	stops = m.endFailed() || stops
	if !stops {
		m.stop = nil
	}
	m.observeNow()
	m.planHooks()
	if m.starting < 0 && len(m.strays) == 0 && !m.anyPosting() {
		m.planContainers()
	}
}

// planSandbox makes a sandbox, once nothing of an earlier one is left.
func (m *StateMachine) planSandbox() {
	if m.run.busy || !m.halt() {
		return
	}
	if m.sandbox() != nil && m.pod.GetSpec().GetRestartPolicy() == "Never" && m.anyRan() {
		// Its processes are gone with the sandbox, and the policy forbids to run them again.
		for i := range m.containers {
			if c := &m.containers[i]; m.kind(i) == app && c.State == None {
				m.end = ending{reason: "SandboxLost", grace: -1,
					message: "the pod's sandbox was lost before all containers had started"}
			}
		}
		m.advance(Stopping)
		return
	}
	if !m.may(&m.run) {
		return
	}
	m.run.busy = true
	m.confirmed, m.observeWhole, m.renewed = false, false, false
	attempt := uint32(0)
	if s := m.sandbox(); s != nil {
		attempt = s.Attempt + 1
	}
	m.do(RunSandbox{Attempt: attempt})
}

func (m *StateMachine) anyRan() bool {
	for i := range m.containers {
		if m.kind(i) == app && m.containers[i].State != None {
			return true
		}
	}
	return false
}

// planContainers starts at most one container: the first in order that is due. spec: INIT-1, INIT-4
func (m *StateMachine) planContainers() {
	if m.planEphemeral() {
		return
	}
	for i := range m.containers {
		c := &m.containers[i]
		switch m.kind(i) {
		case initial:
			if m.initialized || c.State == Exited && c.ExitCode == 0 && m.here(c) {
				continue
			}
			if c.State != Running {
				m.start(i)
			}
			return // the later ones wait for it
		case sidecar:
			if c.State == Running {
				if !m.initialized && !m.started(i) {
					return // the next one waits for its startup probe
				}
				continue
			}
			if m.start(i) || !m.initialized && (c.State == None || !m.here(c)) {
				return
			}
		case ephemeral:
		case app:
			m.initialized = true
			if c.State == Running || c.State == Exited && !m.restarts(i) {
				continue
			}
			if m.start(i) {
				return
			}
		}
	}
}

// start starts container i unless it has to wait; it reports whether it did.
func (m *StateMachine) start(i int) bool {
	c := &m.containers[i]
	if c.State == Exited {
		if end := m.backoffEnd(i); m.now.Before(end) {
			m.due(end)
			m.noteBackoff(i)
			return false
		}
	}
	if c.doubts > 0 {
		return false // it may run after all; a look is on its way
	}
	for _, d := range m.dead {
		if d.index == i && (d.unstarted || d.attempt == c.nextAttempt()) {
			return false // a container that never ran is being removed
		}
	}
	if !m.may(&c.start) {
		return false
	}
	c.start.busy = true
	m.starting, m.startCancelled, m.delay = i, false, m.nextDelay(i)
	m.confirmed, m.observeWhole, m.renewed = false, false, false
	m.do(StartContainer{Index: i, Attempt: c.nextAttempt(), SandboxID: m.sandbox().ID, Delay: m.delay,
		TargetID: m.target(i)})
	return true
}

// noteBackoff tells once per instance that its restart has to wait.
func (m *StateMachine) noteBackoff(i int) {
	c := &m.containers[i]
	if c.noted == c.Attempt+1 {
		return
	}
	c.noted = c.Attempt + 1
	meta := m.pod.GetMetadata()
	m.do(Note{Warning: true, Reason: "BackOff", Container: c.Name, Message: fmt.Sprintf(
		"Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, meta.GetName(), meta.GetNamespace(),
		meta.GetUid())})
}

// replaceChanged stops running containers whose image has changed, or that get other resources by a restart; they
// start again with what is new. It reports whether there are any.
func (m *StateMachine) replaceChanged() bool {
	any := false
	for i := range m.containers {
		if c := &m.containers[i]; c.State == Running && m.changed(i) {
			why := fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)
			if m.outgrew(i) {
				why = fmt.Sprintf("Container %s resize requires restart", c.Name)
			}
			any = m.stopOne(c, m.grace(), why)
		}
	}
	return any
}

// discard has a dead container removed, once.
func (m *StateMachine) discard(id string, index int, attempt uint32) {
	if id == "" {
		return
	}
	if !m.isDiscarded(id) {
		m.dead = append(m.dead, remains{id: id, index: index, attempt: attempt})
	}
}

// isDiscarded reports whether a container is to be removed.
func (m *StateMachine) isDiscarded(id string) bool {
	return slices.ContainsFunc(m.dead, func(r remains) bool { return r.id == id })
}

// spare takes back that a container is to be removed, since it runs: it gets its grace first. What the runtime is
// removing already cannot be taken back.
func (m *StateMachine) spare(id string) {
	if m.bury.busy && len(m.dead) > 0 && m.dead[0].id == id {
		return
	}
	m.dead = slices.DeleteFunc(m.dead, func(r remains) bool { return r.id == id })
}

// removeDead removes dead containers that are not needed, one at a time.
func (m *StateMachine) removeDead() {
	if len(m.dead) > 0 && m.may(&m.bury) {
		m.bury.busy = true
		d := m.dead[0]
		m.do(RemoveContainer{ID: d.id, Index: d.index, Attempt: d.attempt})
	}
}

// observeNow asks for an observation that something called for.
func (m *StateMachine) observeNow() {
	if (m.observeAgain || m.observeLater && m.idle()) && m.may(&m.observe) {
		m.askObserve()
	}
}

// idle reports whether nothing is being started.
func (m *StateMachine) idle() bool { return m.starting < 0 && !m.run.busy }

func (m *StateMachine) askObserve() {
	m.observe.busy, m.observeAgain, m.observeLater = true, false, false
	m.observeWhole = m.idle()
	m.expire()
	m.do(Observe{})
}
