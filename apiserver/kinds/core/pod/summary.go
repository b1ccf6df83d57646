package pod

import (
	"fmt"

	"monoplane.dev/codec/value"
	"monoplane.dev/rules/initcontainer"
	"monoplane.dev/rules/phase"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// nodeLost is the reason of a pod whose node cannot be reached (LIFE-7).
const nodeLost = "NodeLost"

// summary is a pod in one line.
type summary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  *metav1.Time
}

// summarize picks the one word that says most: a lost node before termination, termination before what
// containers do, containers before the phase.
func summarize(p *corev1.Pod) summary {
	s := summary{status: p.GetStatus().GetPhase(), total: len(p.GetSpec().GetContainers())}
	if r := p.GetStatus().GetReason(); r != "" {
		s.status = r
	}
	if condition(p, "PodScheduled").GetReason() == "SchedulingGated" {
		s.status = "SchedulingGated"
	}
	sidecars := make(map[string]bool)
	for _, c := range p.GetSpec().GetInitContainers() {
		if initcontainer.IsSidecar(c) {
			sidecars[c.GetName()] = true
			s.total++
		}
	}
	initializing := s.initContainers(p, sidecars)
	if !initializing || condition(p, "Initialized").GetStatus() == "True" {
		s.containers(p, sidecars)
	}
	switch {
	case lost(p):
		s.status = nodeLost
	case p.GetMetadata().GetDeletionTimestamp() != nil && !phase.Terminal(p):
		s.status = "Terminating"
	}
	return s
}

// lost says whether the pod's node cannot be reached, so that what the pod does is unknown.
func lost(p *corev1.Pod) bool {
	return !phase.Terminal(p) && (p.GetStatus().GetReason() == nodeLost || condition(p, "Ready").GetReason() == nodeLost)
}

// initContainers looks at init containers up to the first that holds the pod up, and says whether one does.
func (s *summary) initContainers(p *corev1.Pod, sidecars map[string]bool) (initializing bool) {
	for i, c := range p.GetStatus().GetInitContainerStatuses() {
		s.restarted(c)
		ended, waiting := c.GetState().GetTerminated(), c.GetState().GetWaiting()
		switch {
		case ended != nil && ended.GetExitCode() == 0:
			continue
		case sidecars[c.GetName()] && c.GetStarted():
			if c.GetReady() {
				s.ready++
			}
			continue
		case ended != nil:
			s.status = "Init:" + endReason(ended)
		case waiting.GetReason() != "" && waiting.GetReason() != "PodInitializing":
			s.status = "Init:" + waiting.GetReason()
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.GetSpec().GetInitContainers()))
		}
		return true
	}
	return false
}

// containers looks at the app containers. Of init containers only the restarts of sidecars still count.
func (s *summary) containers(p *corev1.Pod, sidecars map[string]bool) {
	s.restarts, s.lastRestart = 0, nil
	for _, c := range p.GetStatus().GetInitContainerStatuses() {
		if sidecars[c.GetName()] {
			s.restarted(c)
		}
	}
	running := false
	all := p.GetStatus().GetContainerStatuses()
	for i := len(all) - 1; i >= 0; i-- { // the first container has the last word
		c := all[i]
		s.restarted(c)
		switch state := c.GetState(); {
		case state.GetWaiting().GetReason() != "":
			s.status = state.GetWaiting().GetReason()
		case state.GetTerminated() != nil:
			s.status = endReason(state.GetTerminated())
		case c.GetReady() && state.GetRunning() != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if condition(p, "Ready").GetStatus() == "True" {
			s.status = "Running"
		}
	}
}

func (s *summary) restarted(c *corev1.ContainerStatus) {
	s.restarts += int(c.GetRestartCount())
	at := c.GetLastState().GetTerminated().GetFinishedAt()
	if at != nil && (s.lastRestart == nil || value.GoTime(at).After(value.GoTime(s.lastRestart))) {
		s.lastRestart = at
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.GetReason() != "":
		return t.GetReason()
	case t.GetSignal() != 0:
		return fmt.Sprintf("Signal:%d", t.GetSignal())
	default:
		return fmt.Sprintf("ExitCode:%d", t.GetExitCode())
	}
}
