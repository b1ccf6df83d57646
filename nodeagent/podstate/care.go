package podstate

import (
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/grace"
)

// care is what the newest instance of a container needs besides a process: its hooks and its probes. A container
// without any has none.
type care struct {
	// id is the instance's. What was asked about an earlier one changes nothing.
	id string
	// doom says why the instance is ended although its pod goes on.
	doom doom
	// post and pre are the hooks postStart and preStop.
	post, pre hook
	// term is when TERM follows at the latest, from when preStop is begun until it does.
	term time.Time
	// announced: the user was told that the instance is being stopped.
	announced bool
	probes    [probeKinds]probe
}

// doom is why an instance has to end.
type doom uint8

const (
	spared doom = iota
	failedStartup
	failedLiveness
	failedPostStart
)

// newCare returns what an instance of container i needs that has just been started, nil for nothing. Plain init
// containers need nothing. spec: INIT-2
func (m *StateMachine) newCare(i int) *care {
	spec := m.spec(i)
	post, pre := PostStart.Of(spec) != nil, PreStop.Of(spec) != nil
	if m.kind(i) == initial || !post && !pre && spec.LivenessProbe == nil && spec.ReadinessProbe == nil &&
		spec.StartupProbe == nil {
		return nil
	}
	k := &care{id: m.containers[i].ID}
	if post {
		k.post = hookDue
	}
	if pre {
		k.pre = hookDue
	}
	return k
}

// tend takes up the care of instances that run and ends that of those which have ended.
func (m *StateMachine) tend() {
	for i := range m.containers {
		c := &m.containers[i]
		if k := c.care; k != nil && (c.State != Running || k.id != c.ID) {
			m.endHooks(k)
		}
		if c.State == Running && (c.care == nil || c.care.id != c.ID) {
			c.care = m.newCare(i)
		}
	}
}

// recallCare goes on, after a restart of the agent, with what the API knows of the instances that run: what had
// started has started, and what was ready is ready until a probe says otherwise.
func (m *StateMachine) recallCare(known map[string]*corev1.ContainerStatus) {
	m.tend()
	for i := range m.containers {
		c := &m.containers[i]
		s := known[m.spec(i).GetName()]
		if c.care == nil || s.GetState().GetRunning() == nil || s.GetContainerID() != m.fullID(c.ID) {
			continue
		}
		c.care.post = hookOver // or it would not be said to run
		if s.GetStarted() {
			c.care.probes[StartupProbe].verdict = ProbeSuccess
		}
		if s.GetReady() {
			c.care.probes[ReadinessProbe].verdict = ProbeSuccess
		}
	}
}

// cared returns container i if the id is that of the instance being cared for, nil otherwise.
func (m *StateMachine) cared(i int, id string) *container {
	if i < 0 || i >= len(m.containers) || m.containers[i].care == nil || m.containers[i].care.id != id {
		return nil
	}
	return &m.containers[i]
}

// started reports whether container i counts as running and its startup probe, if it has one, has passed.
// spec: PROBE-3, HOOK-2
func (m *StateMachine) started(i int) bool {
	c := &m.containers[i]
	if c.State != Running || c.Unclear || c.care == nil {
		return c.State == Running && !c.Unclear
	}
	if m.posting(i) {
		return false
	}
	return m.spec(i).StartupProbe == nil || c.care.probes[StartupProbe].verdict == ProbeSuccess
}

// isReady reports whether container i counts as ready: no probe means success. spec: PROBE-3
func (m *StateMachine) isReady(i int) bool {
	c := &m.containers[i]
	return m.started(i) && (c.care == nil || m.spec(i).ReadinessProbe == nil ||
		c.care.probes[ReadinessProbe].verdict == ProbeSuccess)
}

// endFailed stops running instances that are to end although the pod goes on. It reports whether there are any. One
// that the runtime has lost sight of is among them: nothing else would ever tell whether it runs.
func (m *StateMachine) endFailed() bool {
	any := false
	for i := range m.containers {
		if c := &m.containers[i]; c.State == Running && (c.Unclear || c.care != nil && c.care.doom != spared) {
			why, period := m.sentence(i)
			any = m.stopOne(c, period, why) || any
		}
	}
	return any
}

// sentence says, for the user, why container i is ended, and with which grace period: a probe can have its own.
// spec: PROBE-2, PROBE-3
func (m *StateMachine) sentence(i int) (why string, period time.Duration) {
	c, spec := &m.containers[i], m.spec(i)
	switch {
	case c.Unclear:
		return fmt.Sprintf("The runtime does not know the state of container %s, which is stopped to make sure", c.Name),
			m.grace()
	case c.care.doom == failedPostStart:
		return "FailedPostStartHook", m.grace()
	}
	probe, name := spec.GetLivenessProbe(), "liveness"
	if c.care.doom == failedStartup {
		probe, name = spec.GetStartupProbe(), "startup"
	}
	why = fmt.Sprintf("Container %s failed %s probe", c.Name, name)
	switch {
	case m.kind(i) == sidecar:
		why = fmt.Sprintf("Init container %s failed %s probe", c.Name, name)
	case m.policy(i) != "Never":
		why += ", will be restarted"
	}
	if probe.TerminationGracePeriodSeconds != nil {
		return why, grace.Duration(probe.GetTerminationGracePeriodSeconds())
	}
	return why, m.grace()
}

// ailed reports whether container i was ended by a probe and left with success, which its policy would leave at that:
// it runs again all the same, as with kubelets.
func (m *StateMachine) ailed(i int) bool {
	c := &m.containers[i]
	return c.care != nil && c.care.id == c.ID && (c.care.doom == failedStartup || c.care.doom == failedLiveness) &&
		c.ExitCode == 0 && m.policy(i) == "OnFailure"
}
