package validation_test

import (
	"testing"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func TestEqual(t *testing.T) {
	a := &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a", Resources: &corev1.ResourceRequirements{}}}}
	b := &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a"}}}
	if !validation.Equal(a, b) {
		t.Error("empty and absent resources differ")
	}
	a.Affinity = &corev1.Affinity{}
	if validation.Equal(a, b) {
		t.Error("an empty affinity, which Kubernetes points to, equals an absent one")
	}
	var none *corev1.PodSpec
	if !validation.Equal(none, none) || validation.Equal(none, a) || !validation.Equal(none, &corev1.PodSpec{}) {
		t.Error("nil is not treated as empty")
	}
}
