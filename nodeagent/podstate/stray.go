package podstate

import (
	"fmt"
	"slices"
	"time"
)

// stray is a container in the runtime that is not, or not yet, the newest instance of a container in the spec.
//
//	CreateContainer was    StartContainer was not answered,          seen running beside
//	not answered           or another agent left it Created          the newest instance
//	     │                            │                                     │
//	     ▼                            ▼                                     │
//	  unseen                      uncertain ──► expired ──► revoked         │
//	     │                            │            │           │ │          ▼
//	     │                            │            │           │ └──────► stopping
//	     │      seen Running or Exited, and its turn:          │            │ stopped with its grace,
//	     │      it becomes the newest instance ◄───┴───────────┤            │ then removed
//	     ▼                                                     ▼            ▼
//	  a look does not show it                stopped with its grace, still Created, removed
//
// An uncertain one may start at any time: it is looked at again and again. Once its start has expired one more look is
// asked for (expired); if that still shows it Created, or as soon as the pod stops, it is revoked.
//
// Invariant: while a pod has a stray, nothing of it is started.
type stray struct {
	container
	step strayStep
	// expiry is when the runtime no longer takes up the start.
	expiry time.Time
}

type strayStep uint8

const (
	stopping strayStep = iota
	unseen
	uncertain
	expired
	revoked
)

// doubt takes in that it is not known what becomes of an instance that was to be started.
func (m *StateMachine) doubt(in Instance, expiry time.Time) {
	if in.ID == "" {
		m.strays = append(m.strays, stray{container: container{Instance: in}, step: unseen})
		return
	}
	if m.byID(in.ID) == nil {
		m.strays = append(m.strays, stray{container: container{Instance: in}, step: uncertain, expiry: expiry})
		m.confirmed = false
	}
}

// addStray takes in an instance of which nothing was known and which is nobody's newest.
func (m *StateMachine) addStray(in Instance) {
	if in.State == Created {
		m.doubt(in, m.now)
		return
	}
	m.strays = append(m.strays, stray{container: container{Instance: in}})
	m.reportStray(&in)
}

// reportStray tells the user that an instance runs that should not.
func (m *StateMachine) reportStray(in *Instance) {
	i := m.index(in.Name)
	if in.State != Running || i < 0 {
		return
	}
	m.do(Note{Warning: true, Reason: "DuplicateContainer", Container: in.Name, Message: fmt.Sprintf(
		"Container %s (attempt %d, %s) runs beside attempt %d; stopping it", in.Name, in.Attempt, m.fullID(in.ID),
		m.containers[i].Attempt)})
}

func (m *StateMachine) strayByID(id string) *stray {
	for i := range m.strays {
		if m.strays[i].ID == id {
			return &m.strays[i]
		}
	}
	return nil
}

// dropStray forgets a stray that does not exist any more.
func (m *StateMachine) dropStray(id string) {
	m.strays = slices.DeleteFunc(m.strays, func(s stray) bool { return s.ID == id })
	if len(m.strays) == 0 {
		m.strays = nil
	}
}

// seeStray takes in what the runtime shows of a stray.
func (m *StateMachine) seeStray(s *stray, in Instance, whole bool) {
	switch {
	case in.State == Created:
		if whole && s.step == expired {
			s.step = revoked
		}
		return
	case s.State != Created:
		m.merge(&s.container, in)
		return
	}
	// It was started after all.
	old := *s
	m.dropStray(in.ID)
	if in.Delay == 0 {
		in.Delay = old.Delay
	}
	if in.SandboxID == "" {
		in.SandboxID = old.SandboxID
	}
	if !m.adopt(in) {
		old.Instance, old.step = in, stopping
		m.strays = append(m.strays, old)
		m.reportStray(&in)
		return
	}
	c := &m.containers[m.index(in.Name)]
	c.start.done()
	c.waiting, c.message = "", ""
	c.stop, c.stops, c.termAt, c.killAt = old.stop, old.stops, old.termAt, old.killAt
	if in.State == Running && !in.Unclear {
		m.do(Note{Reason: "Started", Message: "Started container " + c.Name, Container: c.Name})
	}
}

// settleStrays sees to it, while the pod is active, that strays come to an end. It reports whether any is being
// stopped.
func (m *StateMachine) settleStrays() bool {
	stops := false
	kept := m.strays[:0]
	for i := range m.strays {
		s := m.strays[i]
		if s.State == Exited && s.stops == 0 {
			m.discardStray(&s)
			continue
		}
		if s.step == unseen || s.step == uncertain || s.step == expired {
			m.lookFor(&s)
		} else {
			stops = true
			m.endStray(&s, m.grace())
		}
		kept = append(kept, s)
	}
	clear(m.strays[len(kept):])
	if m.strays = kept; len(kept) == 0 {
		m.strays = nil
	}
	return stops
}

// lookFor asks for a look at a stray when it is time: at once, with back-off, and when its start expires.
func (m *StateMachine) lookFor(s *stray) {
	switch {
	case s.step == unseen, s.step == uncertain && !m.now.Before(s.expiry):
		m.observeAgain = true
	case s.step == uncertain:
		m.due(s.expiry)
		if m.may(&s.start) {
			s.start.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
			m.observeAgain = true
		}
		m.may(&s.start) // to be woken for the next one
	}
}

// expire notes for which strays the look that is being asked for is the last one.
func (m *StateMachine) expire() {
	for i := range m.strays {
		if s := &m.strays[i]; s.step == uncertain && !m.now.Before(s.expiry) {
			s.step = expired
		}
	}
}

// endStray stops a stray with the grace period and has it removed if it never ran; it reports whether it may still
// run.
func (m *StateMachine) endStray(s *stray, grace time.Duration) bool {
	switch s.step {
	case unseen:
		m.observeAgain = true // nothing is known that could be stopped
		return false
	case uncertain, expired:
		s.step = revoked
	}
	if s.State == Created && m.isDiscarded(s.ID) {
		return true // until it is removed
	}
	return m.stopOne(&s.container, grace, "")
}

// strayStopped takes in that the stop of a stray that had not been seen to run was answered without an error.
func (m *StateMachine) strayStopped(s *stray, in Instance) {
	switch {
	case in.ID == "":
		m.dropStray(s.ID) // the runtime does not have it
	case in.State == Created:
		if s.stops == 0 {
			m.discardStray(s)
		}
	default:
		m.seeStray(s, in, false)
	}
}

// discardStray has a stray removed. Its log stays if an instance of the same attempt has it too.
func (m *StateMachine) discardStray(s *stray) {
	i := m.index(s.Name)
	if i >= 0 {
		c := &m.containers[i]
		if c.State != None && c.Attempt == s.Attempt || c.last != nil && c.last.Attempt == s.Attempt {
			i = -1
		}
	}
	m.discard(s.ID, i, s.Attempt)
}
