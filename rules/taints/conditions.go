package taints

import (
	"math"
	"time"

	corev1 "monoplane.dev/api/core/v1"
)

// The taints that the control plane itself gives to nodes, by their keys.
const (
	// NotReady is of nodes whose agent says that they are not ready.
	NotReady = "node.kubernetes.io/not-ready"
	// Unreachable is of nodes whose agent has fallen silent.
	Unreachable = "node.kubernetes.io/unreachable"
	// Unschedulable is of nodes that are cordoned.
	Unschedulable = "node.kubernetes.io/unschedulable"
	// MemoryPressure, DiskPressure, PIDPressure and NetworkUnavailable are of nodes with these conditions.
	MemoryPressure     = "node.kubernetes.io/memory-pressure"
	DiskPressure       = "node.kubernetes.io/disk-pressure"
	PIDPressure        = "node.kubernetes.io/pid-pressure"
	NetworkUnavailable = "node.kubernetes.io/network-unavailable"
	// OutOfService is put by people, or programs in their stead, on nodes of which they know that nothing runs there any
	// more (GC-3).
	OutOfService = "node.kubernetes.io/out-of-service"
)

// ofConditions says which taint a status of a condition calls for (NODE-5).
var ofConditions = [...]struct{ condition, status, taint string }{
	{"Ready", "False", NotReady},
	{"Ready", "Unknown", Unreachable},
	{"MemoryPressure", "True", MemoryPressure},
	{"DiskPressure", "True", DiskPressure},
	{"PIDPressure", "True", PIDPressure},
	{"NetworkUnavailable", "True", NetworkUnavailable},
}

// ByState says whether the taint with this key and effect comes and goes with the state of its node, so that it has no
// business on a node which does not call for it.
func ByState(key, effect string) bool {
	if effect != NoSchedule {
		return false
	}
	for _, c := range ofConditions {
		if c.taint == key {
			return true
		}
	}
	return key == Unschedulable
}

// OfState returns the keys of the taints with effect NoSchedule that the conditions of a node, and whether it is
// cordoned, call for (NODE-5).
func OfState(n *corev1.Node) []string {
	var keys []string
	for _, c := range n.GetStatus().GetConditions() {
		for _, t := range ofConditions {
			if t.condition == c.GetType() && t.status == c.GetStatus() {
				keys = append(keys, t.taint)
			}
		}
	}
	if n.GetSpec().GetUnschedulable() {
		keys = append(keys, Unschedulable)
	}
	return keys
}

// Out says whether a node is out of service: it is not ready, and somebody who knows that nothing runs there any more
// has said so by the taint (GC-3).
func Out(n *corev1.Node) bool {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == "Ready" && c.GetStatus() == "True" {
			return false
		}
	}
	for _, t := range n.GetSpec().GetTaints() {
		if t.GetKey() == OutOfService {
			return true
		}
	}
	return false
}

// Find returns the taint of a node with a key and an effect, or nil.
func Find(taints []*corev1.Taint, key, effect string) *corev1.Taint {
	for _, t := range taints {
		if t.GetKey() == key && t.GetEffect() == effect {
			return t
		}
	}
	return nil
}

// Stay says how long a pod with these tolerations may stay on a node with these taints, of which those with the effect
// NoExecute count: for ever, or for so long after it came under them; 0 when one is not tolerated. Of several
// tolerations of one taint the first counts, of several taints the shortest time.
func Stay(taints []*corev1.Taint, tolerations []*corev1.Toleration) (d time.Duration, forever bool) {
	seconds := int64(0)
	forever = true
	for _, t := range taints {
		if t.GetEffect() != NoExecute {
			continue
		}
		l := tolerationOf(tolerations, t)
		if l == nil {
			return 0, false
		}
		if l.TolerationSeconds == nil {
			continue
		}
		if s := max(l.GetTolerationSeconds(), 0); forever || s < seconds {
			seconds, forever = s, false
		}
	}
	const most = math.MaxInt64 / int64(time.Second) // of the seconds that a Duration can have
	return time.Duration(min(seconds, most)) * time.Second, forever
}
