// Package taints tells which taints of a node a pod tolerates, and for how long (SCHED-4, SCHED-5, NODE-3), which ones
// the state of a node calls for (NODE-5), and names them and their effects.
//
// It guarantees the answers of Kubernetes: test/oracle compares them over random taints and tolerations. An operator
// that is not known, which the server refuses, tolerates nothing.
package taints

import corev1 "monoplane.dev/api/core/v1"

// The effects.
const (
	// NoSchedule keeps new pods away.
	NoSchedule = "NoSchedule"
	// PreferNoSchedule has new pods go elsewhere if they can.
	PreferNoSchedule = "PreferNoSchedule"
	// NoExecute keeps new pods away, and ends those that are there (NODE-3).
	NoExecute = "NoExecute"
)

// Untolerated returns the first taint that keeps a pod with these tolerations from a node, nil when there is none.
func Untolerated(taints []*corev1.Taint, tolerations []*corev1.Toleration) *corev1.Taint {
	for _, t := range taints {
		if t.GetEffect() != PreferNoSchedule && !Tolerated(tolerations, t) {
			return t
		}
	}
	return nil
}

// Tolerated says whether any of the tolerations tolerates the taint.
func Tolerated(tolerations []*corev1.Toleration, t *corev1.Taint) bool {
	return tolerationOf(tolerations, t) != nil
}

// tolerationOf returns the first toleration that tolerates the taint, or nil.
func tolerationOf(tolerations []*corev1.Toleration, t *corev1.Taint) *corev1.Toleration {
	for _, l := range tolerations {
		if tolerates(l, t) {
			return l
		}
	}
	return nil
}

func tolerates(l *corev1.Toleration, t *corev1.Taint) bool {
	if l.GetEffect() != "" && l.GetEffect() != t.GetEffect() || l.GetKey() != "" && l.GetKey() != t.GetKey() {
		return false
	}
	switch l.GetOperator() {
	case "", "Equal":
		return l.GetValue() == t.GetValue()
	case "Exists":
		return true
	default:
		return false
	}
}
