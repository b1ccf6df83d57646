package semantic_test

import (
	"testing"

	"monoplane.dev/rules/semantic"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestEqual(t *testing.T) {
	a := &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a", Resources: &corev1.ResourceRequirements{}}}}
	b := &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a"}}}
	if !semantic.Equal(a, b) {
		t.Error("empty and absent resources differ")
	}
	a.Affinity = &corev1.Affinity{}
	if semantic.Equal(a, b) {
		t.Error("an empty affinity, which Kubernetes points to, equals an absent one")
	}
	m, n := &metav1.ObjectMeta{Name: "a", CreationTimestamp: &metav1.Time{}}, &metav1.ObjectMeta{Name: "a"}
	if !semantic.Equal(m, n) || !semantic.Equal(n, m) {
		t.Error("a time that is not set differs from none")
	}
	if n.CreationTimestamp = (&metav1.Time{Seconds: 1}); semantic.Equal(m, n) {
		t.Error("a time equals none")
	}
	var none *corev1.PodSpec
	if !semantic.Equal(none, none) || semantic.Equal(none, a) || !semantic.Equal(none, &corev1.PodSpec{}) {
		t.Error("nil is not treated as empty")
	}
}
