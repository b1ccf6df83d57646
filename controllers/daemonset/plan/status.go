package plan

import (
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
)

// Status returns the status of a DaemonSet: on how many nodes there are pods. Of two pods of a node the older counts.
// What the controller does not count is left as it is.
func (s *Seen) Status() *appsv1.DaemonSetStatus {
	out := &appsv1.DaemonSetStatus{}
	if was := s.set.GetStatus(); was != nil {
		out = object.Clone(was)
	}
	var desired, current, misplaced, ready, updated, available int32
	for _, node := range s.names {
		pods := s.pods[node]
		if !s.nodes[node].run {
			if len(pods) > 0 {
				misplaced++
			}
			continue
		}
		desired++
		if len(pods) == 0 {
			continue
		}
		current++
		p := pods[0]
		if availability.Ready(p) {
			ready++
			if s.available(p) {
				available++
			}
		}
		if s.updated(p) {
			updated++
		}
	}
	out.DesiredNumberScheduled, out.CurrentNumberScheduled, out.NumberMisscheduled = desired, current, misplaced
	out.NumberReady, out.UpdatedNumberScheduled, out.NumberAvailable = ready, updated, available
	out.NumberUnavailable = desired - available
	out.ObservedGeneration = s.set.GetMetadata().GetGeneration()
	return out
}

// Next returns after how long a pod that is ready becomes available; 0 for none.
func (s *Seen) Next() time.Duration {
	var all []*corev1.Pod
	for _, pods := range s.pods {
		all = append(all, pods...)
	}
	return availability.Next(all, s.set.GetSpec().GetMinReadySeconds(), s.now)
}
