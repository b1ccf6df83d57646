package podstate

import (
	"fmt"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// absorb takes a fact into the state.
func (m *StateMachine) absorb(in Input) {
	switch in := in.(type) {
	case Start, Tick:
	case Changed:
		m.take(in.Pod)
	case Absent:
		m.absent = true
		if m.removed {
			m.vanished = true // nothing depends on it any more
		}
	case NodeStopping:
		m.nodeStops = true
	case Evict:
		if m.life < Stopped && m.end.reason == "" {
			m.end = ending{reason: in.Reason, message: in.Message, grace: in.Grace, disruption: in.Disruption}
		}
	case Poke:
		m.observeAgain = true
	case RuntimeBack:
		m.runtimeBack()
	case ContentChanged:
		m.contentChanged()
	case Reconsider:
		m.reconsider()
	case ResizeDecided:
		m.resizeDecided(in)
	case Actuated:
		m.actuated(in)
	case Observed:
		m.observed(in)
	case Admission:
		m.admitted(in)
	case SandboxRun:
		m.sandboxRun(in)
	case ContainerRun:
		m.containerRun(in)
	case ContainerStopped:
		m.containerStopped(in)
	case Probed:
		m.probed(in)
	case HookRun:
		m.hookRun(in)
	case SandboxStopped:
		m.sandboxStopped(in)
	case ContainerRemoved:
		m.containerRemoved(in)
	case Removed:
		if in.Err != "" {
			m.removeFailed(in.Err)
			return
		}
		m.remove.done()
		m.removed, m.left = true, ""
	case StatusWritten:
		m.answered(&m.write, in.Outcome, in.Pod)
	case LookedUp:
		m.lookedUp(in)
	case PodDeleted:
		m.podDeleted(in)
	}
}

// take replaces the API object by a newer one.
func (m *StateMachine) take(p *corev1.Pod) {
	if p != nil && newer(m.pod, p) {
		was := m.pod
		m.pod = p
		m.meetEphemeral()
		m.resized(was)
	}
}

// answered handles the answer to a write.
func (m *StateMachine) answered(r *retry, o Outcome, p *corev1.Pod) {
	switch o {
	case OK:
		r.done()
		m.take(p)
	case Failed:
		r.failed(m.now, m.host.Policy.APIDelay, m.host.Policy.APIDelayMax)
	case Conflict, Missing:
		r.failed(m.now, m.host.Policy.APIDelay, m.host.Policy.APIDelayMax)
		m.absent = true // read it again; the answer is either newer or says that it is gone
	}
}

func (m *StateMachine) lookedUp(in LookedUp) {
	switch in.Outcome {
	case OK:
		m.look.done()
		m.absent = false
		m.take(in.Pod)
	case Missing:
		m.look.done()
		m.vanished = true
	default:
		m.look.failed(m.now, m.host.Policy.APIDelay, m.host.Policy.APIDelayMax)
	}
}

func (m *StateMachine) podDeleted(in PodDeleted) {
	p := &m.host.Policy
	switch in.Outcome {
	case OK:
		m.erase.done()
		m.erased = true
		if len(m.pod.GetMetadata().GetFinalizers()) == 0 {
			m.vanished = true
		}
	case Missing:
		m.erase.done()
		m.vanished = true
	default:
		m.erase.failed(m.now, p.APIDelay, p.APIDelayMax)
		m.absent = m.absent || in.Outcome == Conflict
	}
}

func (m *StateMachine) admitted(in Admission) {
	if in.Undecided {
		m.admit.failed(m.now, m.host.Policy.APIDelay, m.host.Policy.APIDelayMax)
		return
	}
	m.admit.done()
	if m.life != Admitting {
		return
	}
	m.began = m.now.Add(-time.Duration(m.now.Nanosecond())) // to the second, as the status says it
	if in.Reason == "" {
		m.advance(Active)
		return
	}
	m.end = ending{reason: in.Reason, message: in.Message, grace: -1}
	m.refused = true
	m.do(Note{Warning: true, Reason: in.Reason, Message: in.Message})
}

func (m *StateMachine) sandboxRun(in SandboxRun) {
	if in.Err != "" {
		m.run.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
		m.unlessRenewed(&m.run)
		note := Note{Warning: true, Reason: "FailedCreatePodSandBox", Message: "Failed to create pod sandbox: " + in.Err}
		if in.Unmounted {
			note.Reason, note.Message = "FailedMount", in.Err
		}
		m.do(note)
		if in.Invalid && !m.anyRan() {
			m.fail(note.Reason, note.Message)
		}
		return
	}
	m.run.done()
	m.seeSandbox(in.Sandbox, true)
	for i := range m.containers { // what failed in the old one may succeed in this
		c := &m.containers[i]
		c.start, c.waiting, c.message = retry{}, "", ""
	}
	m.resetting, m.again = false, false // they all start anew
	m.initialized = len(m.pod.GetSpec().GetInitContainers()) == 0
}

func (m *StateMachine) containerRun(in ContainerRun) {
	p := &m.host.Policy
	c := &m.containers[in.Index]
	m.starting = -1
	switch in.Instance.Delay = m.delay; {
	case in.Instance.ID == "":
		if in.Reason == "CreateContainerError" { // what was asked for may exist all the same
			m.doubt(Instance{Name: m.spec(in.Index).GetName(), State: Created}, m.now)
		}
	case in.Instance.State == Created:
		m.doubt(in.Instance, later(in.Expiry, m.now))
	default:
		known := m.byID(in.Instance.ID) != nil
		m.seeInstance(in.Instance, false)
		if !known && m.rz != nil && c.ID == in.Instance.ID {
			m.has(in.Index, m.rz.started)
		}
	}
	if m.rz != nil {
		m.rz.started = nil
	}
	if in.Reason == "" {
		c.start.done()
		c.waiting, c.message = "", ""
		m.do(Note{Reason: "Started", Message: "Started container " + c.Name, Container: c.Name})
		return
	}
	c.start.busy = false
	if m.life >= Stopping && (in.Instance.ID == "" || in.Instance.State == Created) {
		return // it is not news that nothing starts
	}
	if in.Instance.State == Created && c.ID == in.Instance.ID && in.Instance.ID != "" {
		return // an event has told meanwhile that it runs
	}
	again := pulled(c.waiting)
	c.waiting, c.message = in.Reason, in.Message
	if in.Invalid && c.State == None && c.floor == 0 && m.kind(in.Index) != ephemeral {
		m.fail(in.Reason, fmt.Sprintf("container %s can never be created: %s", m.spec(in.Index).GetName(), in.Message))
	}
	if pulling(in.Reason) {
		in.Message = in.Reason // why it failed has been told
	}
	m.do(Note{Warning: true, Reason: "Failed", Message: "Error: " + in.Message, Container: m.spec(in.Index).GetName()})
	if c.State == Exited && c.ID == in.Instance.ID {
		c.Reason, c.Message = in.Instance.Reason, in.Instance.Message // an event may have said less
		// it counts as a run: policy and back-off of restarts apply
		c.start.done()
		return
	}
	if again && pulled(in.Reason) {
		m.backOffPull(in.Index, in.Image)
	}
	c.start.failed(m.now, p.PullDelay, p.PullDelayMax)
	if in.Reason == "CreateContainerConfigError" {
		c.start.failures = 0 // nothing was asked of anybody: to look again is cheap
	}
	m.unlessRenewed(&c.start)
}

func (m *StateMachine) containerStopped(in ContainerStopped) {
	c := m.byID(in.ID)
	if c == nil {
		return
	}
	c.stops = max(0, c.stops-1) // one that was lost from sight and seen again may have been stopped before
	if c.stops == 0 {
		c.termAt, c.killAt = time.Time{}, time.Time{}
	}
	if in.Err != "" {
		if c.stops == 0 {
			c.stop.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
		}
		m.observeAgain = true
		m.stopFailed("container "+c.Name, in.Err)
		return
	}
	c.stop.done()
	if s := m.strayByID(in.ID); s != nil && s.State == Created {
		m.strayStopped(s, in.Instance)
		return
	}
	if in.Instance.State == Created && in.Instance.ID != "" {
		m.neverRan(c)
		return
	}
	if in.Instance.ID == "" {
		in.Instance = c.Instance
		m.lose(&in.Instance)
	}
	m.merge(c, in.Instance)
}

// fail makes the pod fail, once nothing of it runs.
func (m *StateMachine) fail(reason, message string) {
	if m.end.reason == "" {
		m.end = ending{reason: reason, message: message, grace: -1}
	}
}

func (m *StateMachine) sandboxStopped(in SandboxStopped) {
	if in.Err != "" {
		m.stopBox.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
		m.stopFailed("sandbox", in.Err)
		return
	}
	m.stopBox.done()
	for i := range m.sandboxes {
		if s := &m.sandboxes[i]; s.ID == in.ID {
			s.Ready, s.stopped = false, true
		}
	}
}

func (m *StateMachine) containerRemoved(in ContainerRemoved) {
	if in.Err != "" {
		m.bury.failed(m.now, m.host.Policy.RuntimeDelay, m.host.Policy.RuntimeDelayMax)
		m.stopFailed("removal of container "+in.ID, in.Err)
		if c := m.byID(in.ID); c != nil && c.State == Running {
			m.spare(in.ID) // it was started meanwhile
		}
		if len(m.dead) > 1 && m.dead[0].id == in.ID {
			m.dead = append(m.dead[1:], m.dead[0]) // the others need not wait for it
		}
		m.observeAgain = m.observeAgain || m.strayByID(in.ID) != nil // it may have started
		return
	}
	m.bury.done()
	m.dead = slices.DeleteFunc(m.dead, func(r remains) bool { return r.id == in.ID })
	if len(m.dead) == 0 {
		m.dead = nil
	}
	if s := m.strayByID(in.ID); s != nil {
		if i := m.index(s.Name); i >= 0 {
			m.containers[i].waiting, m.containers[i].message = "", "" // it is known now
		}
		m.dropStray(in.ID)
	}
}
