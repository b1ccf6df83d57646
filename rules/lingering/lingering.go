// Package lingering names the conditions by which an agent says that a pod which is to end does not, and why. The
// agent writes them, others explain by them.
//
// It guarantees that a condition which is not True says nothing.
package lingering

import (
	corev1 "monoplane.dev/api/core/v1"
)

// The types of the conditions. A pod, and for KillFailed a node, has one only once it has been needed.
const (
	// KillFailed is True while something is not confirmed dead although its grace period is over.
	KillFailed = "monoplane.dev/KillFailed"
	// RemoveFailed is True while something that is dead, such as a mounted volume, cannot be taken off the node, so that
	// the object stays.
	RemoveFailed = "monoplane.dev/RemoveFailed"
)

// Why returns why a pod does not end, empty when nothing is known to hold it.
func Why(p *corev1.Pod) string {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetStatus() == "True" && (c.GetType() == KillFailed || c.GetType() == RemoveFailed) {
			return c.GetMessage()
		}
	}
	return ""
}
