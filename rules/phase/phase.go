// Package phase names the phases of a pod and says which are final and which may follow which (LIFE-1, LIFE-10). The
// server checks what is written by it; the scheduler, the controllers and the agents tell by it which pods have
// ended.
//
// It guarantees that its functions look at the phase alone. It knows nothing of who may write one, nor of the state
// of containers that a phase sums up.
package phase

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

// The phases.
const (
	// Pending pods wait for a node, for images or for init containers.
	Pending = "Pending"
	// Running pods have been started.
	Running = "Running"
	// Succeeded pods have ended, all containers with exit code 0.
	Succeeded = "Succeeded"
	// Failed pods have ended otherwise.
	Failed = "Failed"
	// Unknown is the phase that older releases of Kubernetes gave to pods of nodes that were lost. Nobody writes it.
	Unknown = "Unknown"
)

// order is how a pod goes through the phases.
var order = []string{Pending, Running, Succeeded, Failed}

// All returns the phases that a pod can be given, in their order.
func All() []string { return slices.Clone(order) }

// Terminal says whether a pod has ended for good.
func Terminal(p *corev1.Pod) bool { return Ends(p.GetStatus().GetPhase()) }

// Ends says whether a phase is final.
func Ends(phase string) bool { return phase == Succeeded || phase == Failed }

// Follows says whether a pod whose phase is was may be given the phase now: one that is not final may stay or go on,
// never back. Unknown, like no phase at all, says nothing, so that any phase may follow it; it follows nothing but
// itself.
func Follows(was, now string) bool {
	if now == was {
		return true
	}
	to := slices.Index(order, now)
	return to >= 0 && !Ends(was) && to > slices.Index(order, was)
}
