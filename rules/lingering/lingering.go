// Package lingering names the conditions by which an agent says that a pod which is to end does not, and why. The
// agent writes them, others explain by them.
//
// It guarantees that a condition which is not True says nothing.
package lingering

import (
	"slices"

	"monoplane.dev/rules/phase"

	corev1 "monoplane.dev/api/core/v1"
)

// The types of the conditions. A pod, and for KillFailed a node, has one only once it has been needed.
const (
	// KillFailed is True while something is not confirmed dead although its grace period is over.
	KillFailed = "monoplane.dev/KillFailed"
	// RemoveFailed is True while something that is dead, such as a mounted volume, cannot be taken off the node, so that
	// the object stays.
	RemoveFailed = "monoplane.dev/RemoveFailed"
	// Unconfirmed is True from when a user has said that a bound pod ended until its agent has seen that nothing of it
	// runs. The server writes it, and the agent takes it away.
	Unconfirmed = "monoplane.dev/Unconfirmed"
)

// Confirmed reports whether a pod has ended for good, and not by the word of a user alone.
func Confirmed(p *corev1.Pod) bool {
	return phase.Terminal(p) && !slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
		return c.GetType() == Unconfirmed && c.GetStatus() == "True"
	})
}

// Why returns why a pod does not end, empty when nothing is known to hold it.
func Why(p *corev1.Pod) string {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetStatus() == "True" && (c.GetType() == KillFailed || c.GetType() == RemoveFailed) {
			return c.GetMessage()
		}
	}
	return ""
}
