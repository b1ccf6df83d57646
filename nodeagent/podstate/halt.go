package podstate

import (
	"time"

	"monoplane.dev/rules/grace"
)

// halt stops all that runs and reports whether a full observation has confirmed that nothing is left:
//
//	pulls cancelled, containers stopped, sidecars after them ─► sandboxes stopped ─► observed
//	        ▲                                                                          │
//	        └───────────────────────── something runs after all ◄──────────────────────┘
//
// spec: TERM-1, TERM-4, INIT-5
func (m *StateMachine) halt() bool {
	m.removeDead()
	idle := m.idle()
	if m.confirmed && idle {
		m.stop = nil
		return true
	}
	if !idle && !m.startCancelled && m.life >= Stopping {
		m.startCancelled = true
		m.do(CancelStart{})
	}
	grace := m.grace()
	m.limitStop(grace)
	if m.stopContainers(grace) || !idle {
		return false
	}
	// Stopping a sandbox kills what is left in it: a container of which only the runtime knows must be seen first.
	if !m.observeAgain && !m.observeLater && !m.observe.busy && m.stopSandboxes() {
		return false
	}
	if m.may(&m.observe) {
		m.askObserve()
	}
	return false
}

// stopContainers asks for the stops that are due and reports whether something may still run.
func (m *StateMachine) stopContainers(grace time.Duration) bool {
	running := false
	for i := range m.strays {
		running = m.endStray(&m.strays[i], grace) || running
	}
	debugged := false // sidecars do not wait for ephemeral containers
	for i := range m.containers {
		switch m.kind(i) {
		case sidecar:
		case ephemeral:
			debugged = m.stopOne(&m.containers[i], grace, "") || debugged
		default:
			running = m.stopOne(&m.containers[i], grace, "") || running
		}
	}
	over := !m.now.Before(m.stop.end)
	// Sidecars serve the others: they stop after them, the last one first, or all at once when the period is over. Their
	// hooks do not wait for that.
	for i := len(m.containers) - 1; i >= 0; i-- {
		c := &m.containers[i]
		if m.kind(i) != sidecar || c.State != Running && c.stops == 0 {
			continue
		}
		switch {
		case over:
			m.waitNoLonger(c)
			m.stopOne(c, m.host.Policy.MinGrace, "")
		case !running && m.starting < 0:
			m.stopOne(c, m.stop.end.Sub(m.now), "")
		default:
			if c.stops == 0 {
				m.preStop(c, m.stop.end.Sub(m.now), "")
			}
			m.due(m.stop.end)
		}
		running = true
	}
	return running || debugged
}

// stopOne stops a container with the grace period, or shortens a stop in flight; it reports whether the
// container may still run. A stop that failed is begun anew with the whole period (DEL-10). Why says to the user what
// the stop is for; empty when there is nothing to say but that it is stopped. spec: TERM-3
func (m *StateMachine) stopOne(c *container, grace time.Duration, why string) bool {
	if c.State != Running && c.State != Created {
		return c.stops > 0
	}
	m.beginStop(grace)
	least := m.host.Policy.MinGrace
	if c.stops == 0 {
		if !m.may(&c.stop) {
			return true
		}
		left, now := m.preStop(c, grace, why)
		if !now {
			return true
		}
		if c.stop.failures == 0 && (c.care == nil || !c.care.announced) {
			m.sayKilling(c, why)
		}
		if c.care != nil {
			c.care.term = time.Time{} // a stop that fails is begun anew with the whole period
		}
		c.termAt, c.killAt = m.now, m.now.Add(max(left, least))
	} else {
		kill := m.now.Add(grace)
		if earliest := c.termAt.Add(least); kill.Before(earliest) {
			kill = earliest
		}
		if !kill.Before(c.killAt) {
			return true
		}
		c.killAt = kill
	}
	c.stops++
	m.do(StopContainer{ID: c.ID, Name: c.Name, Timeout: seconds(c.killAt.Sub(m.now))})
	return true
}

func (m *StateMachine) sayKilling(c *container, why string) {
	if why == "" {
		why = "Stopping container " + c.Name
	}
	m.do(Note{Reason: "Killing", Message: why, Container: c.Name})
}

// seconds rounds up to whole seconds, which is what CRI knows: a process never gets less than its grace.
func seconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// stopSandboxes stops sandboxes that are not known to be stopped, ready or not (one whose supervisor died may
// have left processes); it reports whether there are any.
func (m *StateMachine) stopSandboxes() bool {
	for i := range m.sandboxes {
		if s := &m.sandboxes[i]; !s.stopped {
			if m.may(&m.stopBox) {
				m.stopBox.busy = true
				m.do(StopSandbox{ID: s.ID})
			}
			return true
		}
	}
	return m.stopBox.busy
}

// noGrace reports whether the pod asks for no grace period: a 0 in its spec, which counts as the least there is,
// unless a longer one came with its deletion. spec: DEL-14, HOOK-2
func (m *StateMachine) noGrace() bool {
	s := m.pod.GetSpec()
	return s != nil && s.TerminationGracePeriodSeconds != nil && s.GetTerminationGracePeriodSeconds() == 0 &&
		m.grace() <= time.Second
}

// grace returns the grace period that holds now. spec: DEL-1, DEL-9, LIFE-6
func (m *StateMachine) grace() time.Duration {
	if m.vanished {
		return m.host.Policy.VanishedGrace
	}
	seconds := int64(grace.Default)
	if s := m.pod.GetSpec(); s != nil {
		seconds = grace.Own(s.TerminationGracePeriodSeconds)
	}
	if meta := m.pod.GetMetadata(); m.deleting() && meta.DeletionGracePeriodSeconds != nil {
		seconds = grace.Asked(meta.GetDeletionGracePeriodSeconds())
	}
	period := grace.Duration(seconds)
	if m.end.grace >= 0 {
		period = min(period, m.end.grace)
	}
	return period
}
