package podstate

import "time"

// restartAll is the action of a restart rule by which the end of one container restarts all of its pod.
const restartAll = "RestartAllContainers"

// planReset restarts all containers of the pod, init containers too, in the sandbox that there is, when one has ended
// with a code for which a rule asks for that. It reports whether that is under way; then nothing else is to be done.
//
//	            one has ended                all have ended, and the back-off of
//	            by such a rule               the one that asked for it is over
//	(none) ───────────────────► resetting ───────────────────────────────────────► (none), all as before the
//	                             the others get TERM and at least MinGrace,         first start, but for their
//	                             without their hooks                                counts and last states
//
// The condition AllContainersRestarting is True meanwhile. An agent that restarts finds the container that asked for
// it as it was, and begins anew. spec: CTR-2
func (m *StateMachine) planReset() bool {
	source := m.resetSource()
	if m.resetting = m.resetting || source >= 0; !m.resetting {
		return false
	}
	if m.starting >= 0 {
		if !m.startCancelled {
			m.startCancelled = true
			m.do(CancelStart{})
		}
		return true
	}
	left := len(m.strays) > 0
	for i := range m.containers {
		if m.kind(i) != ephemeral {
			left = m.stopOne(&m.containers[i], 0, "") || left
		}
	}
	if left {
		return true
	}
	if source >= 0 {
		if end := m.backoffEnd(source); m.now.Before(end) {
			m.due(end)
			m.noteBackoff(source)
			return true
		}
	}
	for i := range m.containers {
		if m.kind(i) != ephemeral {
			m.renew(i)
		}
	}
	m.resetting, m.stop = false, nil
	m.again = m.again || m.initialized
	m.initialized = len(m.pod.GetSpec().GetInitContainers()) == 0
	return false
}

// resetSource returns the container that asks for all to be restarted, -1 for none.
func (m *StateMachine) resetSource() int {
	for i := range m.containers {
		if m.asksReset(i) {
			return i
		}
	}
	return -1
}

// asksReset reports whether container i has ended in the current sandbox with a code that restarts all.
func (m *StateMachine) asksReset(i int) bool {
	c := &m.containers[i]
	return c.State == Exited && m.kind(i) != ephemeral && m.here(c) &&
		rule(m.spec(i).GetRestartPolicyRules(), c.ExitCode) == restartAll
}

// renew makes container i what it was before its first start, but for its counts and its last state.
func (m *StateMachine) renew(i int) {
	c := &m.containers[i]
	c.start, c.waiting, c.message, c.care = retry{}, "", "", nil
	c.given, c.settled, c.outgrown = nil, nil, 0
	if c.State == None {
		return
	}
	c.carried = m.earned(i) // it was not its fault
	if m.asksReset(i) {
		c.carried = m.nextDelay(i)
	}
	m.discardLast(c)
	last := c.Instance
	c.last, c.lastRemoved, c.floor, c.Instance = &last, false, c.Attempt+1, Instance{}
	c.stop, c.stops, c.termAt, c.killAt = retry{}, 0, time.Time{}, time.Time{}
}
