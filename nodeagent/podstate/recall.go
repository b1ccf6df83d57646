package podstate

import (
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// recall completes what the runtime shows, after a restart of the agent or the machine, by what the API
// object remembers, and returns its container statuses by name: counts go on, exit codes are kept, and a container
// that the runtime has lost has ended.
func (m *StateMachine) recall() map[string]*corev1.ContainerStatus {
	status := m.pod.GetStatus()
	known := m.known()
	m.recallResources(known)
	for i := range m.containers {
		m.recallContainer(&m.containers[i], known[m.spec(i).GetName()])
	}
	m.recallCare(known)
	for i := range m.containers {
		if c := &m.containers[i]; m.kind(i) == app && c.State != None && m.here(c) {
			m.initialized = true // INIT-7: init containers are not run again, but in a new sandbox (INIT-2)
		}
	}
	if s := m.sandbox(); s != nil && s.Ready && hasTrue(status, condInitialized) {
		m.initialized = m.initialized || m.initsDone()
		m.again = !m.initialized && condition(status, condRestarting) != nil
	}
	return known
}

// known returns the statuses of the containers by name.
func (m *StateMachine) known() map[string]*corev1.ContainerStatus {
	known := make(map[string]*corev1.ContainerStatus)
	status := m.pod.GetStatus()
	for _, list := range [...][]*corev1.ContainerStatus{status.GetInitContainerStatuses(), status.GetContainerStatuses(),
		status.GetEphemeralContainerStatuses()} {
		for _, s := range list {
			known[s.GetName()] = s
		}
	}
	return known
}

// initsDone reports whether every init container has done its part in the current sandbox.
func (m *StateMachine) initsDone() bool {
	for i := range m.containers {
		c := &m.containers[i]
		switch m.kind(i) {
		case initial:
			if c.State != Exited || c.ExitCode != 0 || !m.here(c) {
				return false
			}
		case sidecar:
			if c.State == None || !m.here(c) {
				return false
			}
		}
	}
	return true
}

func (m *StateMachine) recallContainer(c *container, s *corev1.ContainerStatus) {
	if s == nil {
		return
	}
	if c.State == Exited && c.Attempt < uint32(max(0, s.GetRestartCount())) {
		// The runtime has only what was there before.
		before := c.Instance
		c.last, c.lastRemoved, c.Instance = &before, false, Instance{}
	}
	if t := s.GetLastState().GetTerminated(); t != nil && c.last == nil {
		last := recalled(s, t)
		if last.ID != c.ID {
			c.last = &last
		}
	}
	if c.State != None {
		return
	}
	c.floor = uint32(max(0, s.GetRestartCount()))
	if s.GetContainerID() == "" {
		return
	}
	t := s.GetState().GetTerminated()
	if t == nil && s.GetState().GetWaiting() != nil && c.last != nil {
		c.Instance, c.last = *c.last, nil // it waits for its restart
	} else {
		c.Instance = recalled(s, t)
	}
	if stray := m.strayByID(c.ID); stray != nil {
		// The runtime says of it that it was never started, or takes it for another: what was known of it stands.
		if stray.State != Exited && s.GetState().GetRunning() != nil {
			c.Instance = Instance{ID: c.ID, Name: s.GetName(), State: Running, StartedAt: c.StartedAt,
				SandboxID: stray.SandboxID, Hash: stray.Hash, Delay: stray.Delay, Image: s.GetImage(), ImageID: s.GetImageID()}
		}
		m.dropStray(c.ID)
	}
	c.Attempt = c.floor
	if c.State == Running {
		c.StartedAt = m.anchor(c.StartedAt)
		return
	}
	if c.StartedAt, c.FinishedAt = m.anchor(c.StartedAt), m.anchor(c.FinishedAt); c.FinishedAt.IsZero() {
		c.FinishedAt = m.now
	}
}

// recalled makes an instance of what the API says of a container that the runtime no longer has.
func recalled(s *corev1.ContainerStatus, t *corev1.ContainerStateTerminated) Instance {
	in := Instance{
		Name: s.GetName(), State: Exited, Image: s.GetImage(), ImageID: s.GetImageID(),
		ID: bareID(s.GetContainerID()), ExitCode: lostCode, Reason: lostReason, Message: lostMessage,
		StartedAt: goTime(s.GetState().GetRunning().GetStartedAt()),
	}
	if t != nil {
		in.ID, in.ExitCode, in.Signal = bareID(t.GetContainerID()), t.GetExitCode(), t.GetSignal()
		in.Reason, in.Message = t.GetReason(), t.GetMessage()
		in.StartedAt, in.FinishedAt = goTime(t.GetStartedAt()), goTime(t.GetFinishedAt())
	}
	return in
}

// bareID takes the runtime's name off a container id.
func bareID(id string) string {
	_, bare, found := strings.Cut(id, "://")
	if !found {
		return id
	}
	return bare
}

func goTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), int64(t.GetNanos()))
}

// apiTime returns t as the API states it, to the second.
func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Seconds: t.Unix()}
}
