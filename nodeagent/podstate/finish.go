package podstate

import (
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
)

// planStopped waits, with nothing left of the pod but records, until the records may go.
func (m *StateMachine) planStopped() {
	if !m.confirmed && !m.halt() {
		return // something was seen after all
	}
	m.removeDead()
	switch {
	case m.vanished:
		m.advance(Removing)
	case m.deleting() && lingering.Confirmed(m.pod):
		m.advance(Removing) // TERM-2, LIFE-5: the terminal phase has been written
	}
}

// planRemoving frees what the pod holds on the node, then lets the object go. spec: DEL-7
func (m *StateMachine) planRemoving() {
	if !m.removed {
		if !m.bury.busy && m.may(&m.remove) {
			m.remove.busy = true
			ids := make([]string, len(m.sandboxes))
			for i, s := range m.sandboxes {
				ids[i] = s.ID
			}
			m.do(Remove{Sandboxes: ids})
		}
		return
	}
	if m.vanished {
		m.advance(Gone)
		m.do(Forget{})
		return
	}
	// A finalizer may hold the object after the deletion was accepted; then its end is watched for.
	if !m.erased && m.may(&m.erase) {
		m.erase.busy = true
		m.do(DeletePod{})
	}
}

// removeFailed has it tried again, and tells the user when that has not helped.
func (m *StateMachine) removeFailed(why string) {
	m.remove.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
	if m.remove.failures < 2 || why == m.left {
		return
	}
	m.left = why
	m.do(Note{Warning: true, Reason: "FailedRemovePod", Message: "error removing pod: " + why})
}

// remaining returns what the status says while a pod that has ended, and is deleted, stays. All else in it is final.
func (m *StateMachine) remaining() *corev1.PodStatus {
	s := m.pod.GetStatus().Shallow()
	s.Conditions = slices.Clone(s.Conditions)
	switch {
	case m.left != "":
		m.setCondition(s, lingering.RemoveFailed, "True", "FailedRemovePod", "not removed: "+m.left)
	case m.erased && condition(s, lingering.RemoveFailed) != nil: // a finalizer holds it
		m.setCondition(s, lingering.RemoveFailed, "False", "", "")
	}
	return s
}

// lookUp reads the object again when it seems to be gone or when what is known of it is stale.
func (m *StateMachine) lookUp() {
	if m.absent && !m.vanished && m.may(&m.look) {
		m.look.busy = true
		m.do(Lookup{})
	}
}

// report writes the status when it differs from what the API has. Changes that users wait for are written at
// once, others are gathered for a moment: a pod whose containers start quickly costs one write.
func (m *StateMachine) report() {
	ended := lingering.Confirmed(m.pod)
	if m.vanished || m.absent || m.life == Admitting || ended && m.life < Removing {
		return
	}
	if phase.Terminal(m.pod) && !ended && !m.ends() {
		return // What a user said of it stays until nothing runs.
	}
	if m.began.IsZero() && !m.ends() {
		return // it was never admitted
	}
	var want *corev1.PodStatus
	if ended {
		want = m.remaining()
	} else {
		want = m.status()
	}
	if same(want, m.pod.GetStatus()) {
		m.dirty = time.Time{}
		return
	}
	if m.dirty.IsZero() {
		m.dirty = m.now
	}
	if at := m.dirty.Add(m.gather()); !m.urgent(want) && m.now.Before(at) {
		if !m.write.busy {
			m.due(at)
		}
		return
	}
	if !m.may(&m.write) {
		return
	}
	m.write.busy, m.dirty = true, time.Time{}
	for i := range m.containers {
		if c := &m.containers[i]; m.saysEnded(want, i) {
			c.told = c.Attempt + 1
		}
	}
	m.do(WriteStatus{Pod: withStatus(m.pod, want)})
}

// gather returns how long a change that can wait does wait for more. While a pod stops the end is near, and is
// written at once.
func (m *StateMachine) gather() time.Duration {
	if m.life == Stopping {
		return 10 * m.host.Policy.Coalesce
	}
	return m.host.Policy.Coalesce
}
