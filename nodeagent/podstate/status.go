package podstate

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec/wire"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/qos"
)

// status returns the status that the API should have. What other programs own in it is kept. spec: LIFE-9
//
// It shares with the pod what has not changed.
func (m *StateMachine) status() *corev1.PodStatus {
	s := m.pod.GetStatus().Shallow()
	if s == nil {
		s = &corev1.PodStatus{}
	}
	s.Conditions = slices.Clone(s.Conditions)
	ends := m.ends()
	s.ObservedGeneration = m.pod.GetMetadata().GetGeneration()
	s.Phase = m.phase(s.GetPhase(), ends)
	if ends && m.end.reason != "" {
		s.Reason, s.Message = m.end.reason, m.end.message
	}
	if s.StartTime == nil {
		s.StartTime = apiTime(m.began)
	}
	s.QosClass = qos.Of(m.pod)
	m.addresses(s)
	if !m.refused {
		inits, others := len(m.pod.GetSpec().GetInitContainers()), len(m.containers)-len(m.ephemerals)
		all := make([]*corev1.ContainerStatus, len(m.containers))
		for i := range m.containers {
			all[i] = m.containerStatus(i, ends)
		}
		s.InitContainerStatuses, s.ContainerStatuses = all[:inits:inits], all[inits:others:others]
		if inits == 0 {
			s.InitContainerStatuses = nil
		}
		if others < len(all) {
			s.EphemeralContainerStatuses = all[others:]
			for _, e := range all[others:] {
				e.Started, e.Ready = nil, false // which nobody waits for
			}
		}
	}
	m.stateWhole(s)
	m.conditions(s)
	if ends {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c *corev1.PodCondition) bool {
			return c.GetType() == lingering.Unconfirmed
		})
	}
	return s
}

// ends reports whether the terminal phase may be written: nothing is left, and nothing will run. spec: LIFE-10
func (m *StateMachine) ends() bool {
	return m.life >= Stopped && m.confirmed && m.final()
}

// phase returns the phase; old is what the API has. spec: LIFE-1, LIFE-5
func (m *StateMachine) phase(old string, ends bool) string {
	if phase.Ends(old) {
		return old // A user said so.
	}
	if ends {
		if m.end.reason != "" {
			return phase.Failed
		}
		for i := range m.containers {
			if c := &m.containers[i]; m.kind(i) == app && (c.State != Exited || c.ExitCode != 0) {
				return phase.Failed
			}
		}
		return phase.Succeeded
	}
	if old == phase.Running {
		return phase.Running // a phase never moves back
	}
	if !m.initialized {
		return phase.Pending
	}
	for i := range m.containers {
		if c := &m.containers[i]; m.kind(i) == app && (c.State == None || c.last == nil &&
			(m.posting(i) || c.Unclear && c.StartedAt.IsZero())) {
			return phase.Pending
		}
	}
	return phase.Running
}

func (m *StateMachine) addresses(s *corev1.PodStatus) {
	if hosts := m.host.IPs(); len(hosts) > 0 {
		s.HostIP, s.HostIPs = hosts[0], make([]*corev1.HostIP, len(hosts))
		for i, ip := range hosts {
			s.HostIPs[i] = &corev1.HostIP{Ip: ip}
		}
	}
	ips := m.PodIPs()
	if len(ips) == 0 {
		return
	}
	s.PodIP, s.PodIPs = ips[0], make([]*corev1.PodIP, len(ips))
	for i, ip := range ips {
		s.PodIPs[i] = &corev1.PodIP{Ip: ip}
	}
}

// PodIPs returns the pod's addresses: the sandbox's, or the node's when the pod shares its network (NET-1).
// There are none without a ready sandbox.
func (m *StateMachine) PodIPs() []string {
	box := m.sandbox()
	switch {
	case box == nil || !box.Ready:
		return nil
	case len(box.IPs) > 0:
		return box.IPs
	default:
		return m.host.IPs()
	}
}

// containerStatus returns the status of container i. spec: CTR-1, CTR-4
func (m *StateMachine) containerStatus(i int, ends bool) *corev1.ContainerStatus {
	c, spec := &m.containers[i], m.spec(i)
	s := &corev1.ContainerStatus{
		Name: spec.GetName(), Image: spec.GetImage(), RestartCount: int32(c.floor),
		State: &corev1.ContainerState{}, LastState: &corev1.ContainerState{}, Started: proto.Bool(false),
	}
	if c.State != None {
		s.RestartCount, s.ContainerID, s.ImageID = int32(c.Attempt), m.fullID(c.ID), c.ImageID
		if c.Image != "" {
			s.Image = c.Image
		}
	}
	m.stateFacts(s, i)
	m.stateResources(s, i)
	if c.last != nil {
		s.LastState.Terminated = m.terminated(c.last)
	}
	switch {
	case m.posting(i), c.Unclear && c.StartedAt.IsZero():
		s.State.Waiting = m.waiting(i)
	case c.State == Running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: apiTime(c.StartedAt)}
		s.Started, s.Ready = proto.Bool(m.started(i)), m.kind(i) != initial && m.isReady(i)
	case c.State == Exited:
		s.Ready = m.kind(i) == initial && c.ExitCode == 0
		wait := m.waiting(i)
		if ends || wait == nil {
			s.State.Terminated = m.terminated(&c.Instance)
			break
		}
		s.State.Waiting, s.LastState.Terminated = wait, m.terminated(&c.Instance)
	default:
		if ends && m.missed(i) {
			t := &corev1.ContainerStateTerminated{
				ExitCode: lostCode, Reason: lostReason, Message: lostMessage + " when the pod was terminated",
			}
			if c.waiting != "" && c.waiting == m.end.reason { // It is why the pod has failed.
				t.Reason, t.Message = c.waiting, c.message
			}
			s.State.Terminated = t
			break
		}
		s.State.Waiting = m.waiting(i)
	}
	return s
}

// missed reports whether container i, which never ran, counts as failed when the pod ends, as with kubelets: an app
// container once the pod has initialized, and an init container unless it and those after it were still waiting for
// their turn. The first init container's turn has come with the pod.
func (m *StateMachine) missed(i int) bool {
	inits := len(m.pod.GetSpec().GetInitContainers())
	if i >= inits {
		return m.initialized && m.kind(i) == app
	}
	for k := i; k < inits; k++ {
		if m.containers[k].State != None {
			return true
		}
	}
	return i == 0
}

// waiting says what container i, which does not run, waits for; nil when it has ended and does not wait. One that is
// replaced by a new definition is never said to have ended: what has ended may not come back where the policy is
// Never.
func (m *StateMachine) waiting(i int) *corev1.ContainerStateWaiting {
	c := &m.containers[i]
	if c.State == Exited && (m.life != Active || m.kind(i) == initial && m.initialized || !m.restarts(i)) {
		return nil
	}
	switch {
	case c.State == Exited && m.now.Before(m.backoffEnd(i)): // spec: CTR-3, also when the last start failed
		meta := m.pod.GetMetadata()
		return &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf(
			"back-off %s restarting failed container=%s pod=%s_%s(%s)",
			m.backoff(i), m.spec(i).GetName(), meta.GetName(), meta.GetNamespace(), meta.GetUid())}
	case c.waiting != "":
		return &corev1.ContainerStateWaiting{Reason: c.waiting, Message: c.message}
	case c.State == Exited && !m.changed(i) && !m.ailed(i):
		return nil // it is about to run again
	case m.initialized && len(m.pod.GetSpec().GetInitContainers()) == 0 || m.initialized && m.kind(i) == app:
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	default:
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
}

// maxMessages is what the termination messages of all containers of a pod may have together, in bytes.
const maxMessages = 12 << 10

// Bounded cuts a termination message to what it may have in a pod of so many containers, of all kinds. spec: CTR-1
func Bounded(message string, containers int) string {
	if most := maxMessages / max(1, containers); len(message) > most {
		return strings.ToValidUTF8(message[:most], "?")
	}
	return message
}

func (m *StateMachine) terminated(in *Instance) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: in.ExitCode, Signal: in.Signal, Reason: in.Reason,
		Message:   Bounded(in.Message, len(m.containers)),
		StartedAt: apiTime(in.StartedAt), FinishedAt: apiTime(in.FinishedAt), ContainerID: m.fullID(in.ID),
	}
	switch {
	case t.Reason != "":
	case t.ExitCode == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return t
}

// fullID returns an id as the API states it, such as "host://0123".
func (m *StateMachine) fullID(id string) string {
	if id == "" {
		return ""
	}
	return m.host.Runtime + "://" + id
}

// same compares statuses.
func same(a, b *corev1.PodStatus) bool { return wire.Equal(a, b) }

// urgent reports whether want differs from what the API has in a way that somebody may wait for.
func (m *StateMachine) urgent(want *corev1.PodStatus) bool {
	have := m.pod.GetStatus()
	changed := want.GetPhase() != have.GetPhase() || hasTrue(want, "Ready") != hasTrue(have, "Ready")
	// While the pod stops there is more to come, soon.
	return m.life >= Stopped || m.life == Active && changed
}

// withStatus returns p with another status, which it takes over.
func withStatus(p *corev1.Pod, s *corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{Metadata: p.GetMetadata(), Spec: p.GetSpec(), Status: s}
}
