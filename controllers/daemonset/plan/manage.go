package plan

import (
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/phase"
)

// Burst is the most pods that are made, and the most that are deleted, at a time.
const Burst = 250

// Step is what is done next.
type Step struct {
	// Create names the nodes that get a pod.
	Create []string
	// Remove are the pods that are deleted.
	Remove []*corev1.Pod
	// Ended are those among them that have ended by themselves.
	Ended []*corev1.Pod
	// Wait is after how long there may be more to do; 0 for never.
	Wait time.Duration
}

// Idle says that nothing is done.
func (s *Step) Idle() bool { return len(s.Create) == 0 && len(s.Remove) == 0 }

// limit leaves what goes beyond a burst for later.
func (s *Step) limit() {
	s.Create = s.Create[:min(len(s.Create), Burst)]
	s.Remove = s.Remove[:min(len(s.Remove), Burst)]
}

// Manage brings each node to the pods that it is to have: none, one, or, while a new one starts beside an old one,
// two. Only when it has nothing to do is it Roll's turn. It notes in b which pods have failed.
func (s *Seen) Manage(b *Backoff) Step {
	var step Step
	surges := s.surge(1) > 0
	for _, node := range s.names {
		pods, there := s.pods[node]
		switch v := s.nodes[node]; {
		case v.run && !there:
			step.Create = append(step.Create, node)
		case v.stay:
			running := s.withoutEnded(&step, b, node, pods)
			switch {
			case surges && len(running) == 0 && v.run:
				step.Create = append(step.Create, node)
			case surges:
				step.Remove = append(step.Remove, s.beyondTwo(running)...)
			default:
				step.Remove = append(step.Remove, running[min(1, len(running)):]...)
			}
		default:
			for _, p := range pods {
				if !deleting(p) {
					step.Remove = append(step.Remove, p)
				}
			}
		}
	}
	step.Remove = append(step.Remove, s.homeless()...)
	step.limit()
	return step
}

// withoutEnded returns the pods of a node that go on, and has the others deleted, those that failed after a while.
func (s *Seen) withoutEnded(step *Step, b *Backoff, node string, pods []*corev1.Pod) (running []*corev1.Pod) {
	for _, p := range pods {
		ended := p.GetStatus().GetPhase()
		switch {
		case deleting(p):
			continue
		case !phase.Terminal(p):
			running = append(running, p)
			continue
		case ended == phase.Failed:
			if left := b.left(node, s.now); left > 0 {
				if step.Wait == 0 || left < step.Wait {
					step.Wait = left
				}
				continue
			}
			b.failed(node, s.now)
		}
		step.Remove, step.Ended = append(step.Remove, p), append(step.Ended, p)
	}
	return running
}

// beyondTwo returns the pods of a node that go while pods may surge. The oldest one of the newest template and the
// oldest one of another stay, and of these the old one goes as soon as it is not ready, or the new one available.
func (s *Seen) beyondTwo(running []*corev1.Pod) (remove []*corev1.Pod) {
	if len(running) < 2 {
		return nil
	}
	var fresh, old *corev1.Pod
	for _, p := range running {
		slot := &old
		if p.GetMetadata().GetLabels()[HashLabel] == s.hash {
			slot = &fresh
		}
		if *slot == nil {
			*slot = p
		} else {
			remove = append(remove, p)
		}
	}
	if fresh != nil && old != nil && (!availability.Ready(old) || s.available(fresh)) {
		remove = append(remove, old)
	}
	return remove
}

// homeless returns the pods that wait for nodes which are not there any more. Nobody else deletes them: they were
// never bound.
func (s *Seen) homeless() (remove []*corev1.Pod) {
	for node, pods := range s.pods {
		if _, there := s.nodes[node]; there {
			continue
		}
		for _, p := range pods {
			if p.GetSpec().GetNodeName() == "" && !deleting(p) {
				remove = append(remove, p)
			}
		}
	}
	slices.SortFunc(remove, older)
	return remove
}
