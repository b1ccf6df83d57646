package resources_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/resources"
)

// spec: INIT-3
func TestHeld(t *testing.T) {
	pod := func(asks, allocated, actual, reason string) *corev1.Pod {
		return &corev1.Pod{
			Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "a",
				Resources: &corev1.ResourceRequirements{Requests: amounts(asks), Limits: amounts("cpu=9")}}, {Name: "b"}}},
			Status: &corev1.PodStatus{
				Conditions: []*corev1.PodCondition{{Type: "PodResizePending", Reason: reason}},
				ContainerStatuses: []*corev1.ContainerStatus{{Name: "b"}, {Name: "a", AllocatedResources: amounts(allocated),
					Resources: &corev1.ResourceRequirements{Requests: amounts(actual)}}},
			},
		}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no resize":             {pod("cpu=1 memory=5", "cpu=1 memory=5", "cpu=1000m memory=5", ""), "cpu=1 memory=5"},
		"more is asked for":     {pod("cpu=3", "cpu=1", "cpu=1", "Deferred"), "cpu=3"},
		"less is asked for":     {pod("cpu=1", "cpu=3", "cpu=3", ""), "cpu=3"},
		"less is granted":       {pod("cpu=1", "cpu=1", "cpu=3", ""), "cpu=3"},
		"more is granted":       {pod("cpu=1", "cpu=4", "cpu=3", ""), "cpu=4"},
		"each by itself":        {pod("cpu=1 memory=9", "cpu=2 memory=7", "cpu=3 memory=5", ""), "cpu=3 memory=9"},
		"never granted":         {pod("cpu=9", "cpu=1", "cpu=2", "Infeasible"), "cpu=2"},
		"never granted, no old": {pod("cpu=9", "", "", "Infeasible"), ""},
	} {
		before := proto.CloneOf(c.pod)
		held := resources.Held(c.pod)
		if got := show(resources.Requests(held)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if name == "no resize" && held != c.pod.Spec {
			t.Errorf("%s: the spec was copied", name)
		}
		if !proto.Equal(before, c.pod) {
			t.Errorf("%s: the pod was changed", name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { resources.Held(&corev1.Pod{}) }); n > 1 {
		t.Errorf("%v allocations for nothing", n)
	}
}
