package podstate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/lingering"
	"monoplane.dev/rules/phase"
)

// Types of pod conditions that an agent writes.
const (
	condScheduled       = "PodScheduled"
	condReadyToStart    = "PodReadyToStartContainers"
	condInitialized     = "Initialized"
	condContainersReady = "ContainersReady"
	condReady           = "Ready"
	// condRestarting is there only once a restart rule has restarted all containers.
	condRestarting = "AllContainersRestarting"
	condKillFailed = lingering.KillFailed
	// condDisruption is True on a pod that the node stops for reasons that are not the pod's. spec: DISR-4, DISR-6
	condDisruption = disruption.Target
)

// conditions brings the agent's conditions in s up to date; phase and container statuses are already set.
// spec: LIFE-3, LIFE-4, LIFE-12
func (m *StateMachine) conditions(s *corev1.PodStatus) {
	set := func(kind string, on bool, reason, message string) {
		status := "False"
		if on {
			status = "True"
		}
		m.setCondition(s, kind, status, reason, message)
	}
	box := m.sandbox()
	set(condReadyToStart, box != nil && box.Ready, "", "")
	over := ""
	switch s.GetPhase() {
	case phase.Succeeded:
		over = "PodCompleted"
	case phase.Failed:
		over = "PodFailed"
	}
	if over == "PodCompleted" || m.initialized || m.again {
		set(condInitialized, true, strings.TrimSuffix(over, "PodFailed"), "")
	} else {
		set(condInitialized, false, "ContainersNotInitialized", names("incomplete", s.GetInitContainerStatuses()))
	}
	ready, reason, message := true, "", ""
	if unready := names("unready", m.counted(s)); unready != "" || m.refused {
		ready, reason, message = false, "ContainersNotReady", unready
	}
	if !m.initialized && ready {
		ready, reason, message = false, "ContainersNotInitialized", names("incomplete", s.GetInitContainerStatuses())
	}
	if over != "" {
		ready, reason, message = false, over, ""
	}
	set(condContainersReady, ready, reason, message)
	if ready {
		if missing := m.gates(s); missing != "" {
			ready, reason, message = false, "ReadinessGatesNotReady", missing
		}
	}
	set(condReady, ready, reason, message)
	if condition(s, condScheduled) == nil {
		set(condScheduled, true, "", "")
	}
	if m.resetting && over == "" {
		set(condRestarting, true, "RestartAllContainersStarted", "container exited with restart policy rule")
	} else if condition(s, condRestarting) != nil {
		set(condRestarting, false, over, "")
	}
	if m.end.disruption != "" {
		set(condDisruption, true, disruption.ByKubelet, m.end.disruption)
	}
	m.resizeConditions(s, over != "")
	if why := m.Stuck(); why != "" {
		set(condKillFailed, true, "FailedKillPod", "not confirmed dead: "+why)
	} else if condition(s, condKillFailed) != nil {
		set(condKillFailed, false, "", "")
	}
}

// counted returns the statuses of the containers whose readiness is the pod's: sidecars' too. spec: INIT-4
func (m *StateMachine) counted(s *corev1.PodStatus) []*corev1.ContainerStatus {
	var out []*corev1.ContainerStatus
	for i, c := range s.GetInitContainerStatuses() {
		if m.kind(i) == sidecar {
			out = append(out, c)
		}
	}
	return append(out, s.GetContainerStatuses()...)
}

// names lists the containers that are not ready, worded with what they are; empty when all are.
func names(what string, statuses []*corev1.ContainerStatus) string {
	var names []string
	for _, c := range statuses {
		if !c.GetReady() {
			names = append(names, c.GetName())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("containers with %s status: [%s]", what, strings.Join(names, " "))
}

// gates says which readiness gates are not True; empty when all are. spec: LIFE-4
func (m *StateMachine) gates(s *corev1.PodStatus) string {
	var missing []string
	for _, g := range m.pod.GetSpec().GetReadinessGates() {
		switch c := condition(s, g.GetConditionType()); {
		case c == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				g.GetConditionType()))
		case c.GetStatus() != "True":
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s",
				g.GetConditionType(), c.GetStatus()))
		}
	}
	return strings.Join(missing, ", ")
}

// setCondition sets one condition; its transition time changes only with its status. The list is the caller's own,
// what is in it is not.
func (m *StateMachine) setCondition(s *corev1.PodStatus, kind, status, reason, message string) {
	m.setConditionAt(s, kind, status, reason, message, m.pod.GetMetadata().GetGeneration())
}

// setConditionAt is setCondition for what was seen of a generation of the object.
func (m *StateMachine) setConditionAt(
	s *corev1.PodStatus, kind, status, reason, message string, generation int64,
) {
	i := slices.IndexFunc(s.Conditions, func(c *corev1.PodCondition) bool { return c.GetType() == kind })
	switch {
	case i < 0:
		i = len(s.Conditions)
		s.Conditions = append(s.Conditions, &corev1.PodCondition{Type: kind})
	case s.Conditions[i].Status == status && s.Conditions[i].Reason == reason && s.Conditions[i].Message == message &&
		s.Conditions[i].ObservedGeneration == generation:
		return
	default:
		s.Conditions[i] = s.Conditions[i].Shallow()
	}
	c := s.Conditions[i]
	if c.Status != status {
		c.Status, c.LastTransitionTime = status, apiTime(m.now)
	}
	c.Reason, c.Message, c.ObservedGeneration = reason, message, generation
}

func condition(s *corev1.PodStatus, kind string) *corev1.PodCondition {
	for _, c := range s.GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func hasTrue(s *corev1.PodStatus, kind string) bool {
	return condition(s, kind).GetStatus() == "True"
}
