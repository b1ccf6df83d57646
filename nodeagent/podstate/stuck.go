package podstate

import (
	"fmt"
	"time"
)

// ongoing is a stop under way: of the whole pod, of what is left of a lost sandbox, or of containers that must not
// run.
type ongoing struct {
	// end is when the grace period of the whole pod ends; zero while single containers are stopped.
	end time.Time
	// overdue is from when on what is left counts as stuck.
	overdue time.Time
	// tell is when the user is told again; zero while the stop is not overdue.
	tell time.Time
	// why is the last error.
	why string
}

// stuckAgain is the time between two events about one pod that is stuck.
const stuckAgain = 5 * time.Minute

// Stuck says why something of the pod is not confirmed dead although its grace period, and what a runtime may need
// after it, is over; empty when that is not so. It is tried on.
func (m *StateMachine) Stuck() string {
	if m.stop == nil || m.stop.tell.IsZero() {
		return ""
	}
	if m.stop.why == "" {
		return "the container runtime has not answered"
	}
	return m.stop.why
}

// beginStop notes that something is being stopped from now on, with a grace period.
func (m *StateMachine) beginStop(grace time.Duration) {
	if m.stop == nil {
		m.stop = &ongoing{overdue: m.now.Add(max(grace, m.host.Policy.MinGrace) + m.host.Policy.StopMargin)}
	}
}

// limitStop notes when the grace period of the whole pod ends; it only becomes shorter.
func (m *StateMachine) limitStop(grace time.Duration) {
	m.beginStop(grace)
	end := m.now.Add(max(grace, m.host.Policy.MinGrace))
	if m.stop.end.IsZero() || end.Before(m.stop.end) {
		m.stop.end = end
		if m.stop.tell.IsZero() {
			m.stop.overdue = end.Add(m.host.Policy.StopMargin)
		}
	}
}

// stopFailed keeps the reason why something could not be stopped.
func (m *StateMachine) stopFailed(what, err string) {
	if m.stop != nil {
		m.stop.why = what + ": " + err
	}
}

// watchStop tells when a stop is overdue, and again once in a while.
func (m *StateMachine) watchStop() {
	s := m.stop
	if s == nil {
		return
	}
	if at := later(s.overdue, s.tell); m.now.Before(at) {
		m.due(at)
		return
	}
	s.tell = m.now.Add(stuckAgain)
	m.due(s.tell)
	m.do(Note{Warning: true, Reason: "FailedKillPod", Message: fmt.Sprintf("error killing pod: not confirmed dead: %s",
		m.Stuck())})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
