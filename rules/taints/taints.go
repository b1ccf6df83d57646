// Package taints tells which taints of a node a pod tolerates (SCHED-4, SCHED-5), and names their effects.
//
// It guarantees the answers of Kubernetes: test/oracle compares them over random taints and tolerations. An operator
// that is not known, which the server refuses, tolerates nothing. It knows nothing of how long a taint is tolerated.
package taints

import corev1 "monoplane.dev/api/core/v1"

// The effects.
const (
	// NoSchedule keeps new pods away.
	NoSchedule = "NoSchedule"
	// PreferNoSchedule has new pods go elsewhere if they can.
	PreferNoSchedule = "PreferNoSchedule"
	// NoExecute keeps new pods away, and in Kubernetes ends those that are there.
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
	for _, l := range tolerations {
		if tolerates(l, t) {
			return true
		}
	}
	return false
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
