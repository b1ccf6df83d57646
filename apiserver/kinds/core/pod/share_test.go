package pod

import (
	"testing"

	"monoplane.dev/internal/intern"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// A resize shares with the live pod all that it does not change. What the pool has in its place by now is not put
// there: others are reading the live pod.
func TestSharedPartsStayOfResizedPods(t *testing.T) {
	made := func() *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p"}, Spec: &corev1.PodSpec{
			Containers:  []*corev1.Container{{Name: "a", Image: "host"}},
			Volumes:     []*corev1.Volume{{Name: "v"}},
			Tolerations: []*corev1.Toleration{{Key: "k"}},
		}}
		DefaultNew(p)
		return p
	}
	live, pool := made(), &intern.Pool{}
	volume, toleration := live.Spec.Volumes[0], live.Spec.Tolerations[0]
	other := made()
	other.Spec.Hostname = "other"
	share(pool, other, nil)

	next := applyResize(made(), live)
	share(pool, next, live)
	if live.Spec.Volumes[0] != volume || live.Spec.Tolerations[0] != toleration {
		t.Error("the live pod was changed")
	}
	if next.Spec.Containers[0] != other.Spec.Containers[0] {
		t.Error("the container that is new is not shared")
	}
}
