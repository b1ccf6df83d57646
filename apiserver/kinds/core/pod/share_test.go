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
		Default(p)
		CompleteNew(p)
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

// What the agents of many pods say alike is there once, and what a change of something else leaves as it is stays.
func TestSharedPartsOfStatuses(t *testing.T) {
	made := func() *corev1.Pod {
		amounts := func() map[string]*metav1.Quantity {
			return map[string]*metav1.Quantity{"cpu": {String_: "1"}, "memory": {String_: "1Gi"}}
		}
		status := func() []*corev1.ContainerStatus {
			return []*corev1.ContainerStatus{nil, {
				Name: "a", AllocatedResources: amounts(), Resources: &corev1.ResourceRequirements{Limits: amounts()},
				VolumeMounts: []*corev1.VolumeMountStatus{{Name: "v", MountPath: "/v"}},
				User:         &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{Uid: 1}},
			}}
		}
		return &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "p", OwnerReferences: []*metav1.OwnerReference{{Name: "set", Uid: "u"}}},
			Status:   &corev1.PodStatus{ContainerStatuses: status(), InitContainerStatuses: status()},
		}
	}
	a, b, pool := made(), made(), &intern.Pool{}
	share(pool, a, nil)
	share(pool, b, made())
	one, other := a.Status.InitContainerStatuses[1], b.Status.ContainerStatuses[1]
	if one.Resources != other.Resources || one.User != other.User || one.VolumeMounts[0] != other.VolumeMounts[0] ||
		one.AllocatedResources["cpu"] != other.AllocatedResources["cpu"] {
		t.Error("equal parts of two statuses are not the same")
	}
	if a.Metadata.OwnerReferences[0] != b.Metadata.OwnerReferences[0] {
		t.Error("equal owners of two pods are not the same")
	}

	live := made()
	user := live.Status.ContainerStatuses[1].User
	marked := &corev1.Pod{Metadata: made().Metadata, Status: &corev1.PodStatus{
		ContainerStatuses: live.Status.ContainerStatuses, Reason: "Evicted",
	}}
	share(pool, marked, live)
	if live.Status.ContainerStatuses[1].User != user {
		t.Error("the live pod was changed")
	}
}
