package availability_test

import (
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/availability"
)

func pod(phase, ready string, since int64, deleting bool) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{}, Status: &corev1.PodStatus{Phase: phase}}
	if ready != "" {
		p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: ready,
			LastTransitionTime: &metav1.Time{Seconds: since}}}
	}
	if deleting {
		p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
	}
	return p
}

// spec: WORK-1, WORK-5
func TestWhatCounts(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, x := range map[string]struct {
		pod                                   *corev1.Pod
		active, terminating, ready, available bool
	}{
		"pending":                        {pod: pod("Pending", "", 0, false), active: true},
		"running":                        {pod: pod("Running", "False", 0, false), active: true},
		"ready":                          {pod: pod("Running", "True", 995, false), active: true, ready: true},
		"ready long enough":              {pod: pod("Running", "True", 990, false), active: true, ready: true, available: true},
		"ready, since when is not known": {pod: pod("Running", "True", 0, false), active: true, ready: true},
		"being deleted":                  {pod: pod("Running", "True", 900, true), terminating: true, ready: true, available: true},
		"ended":                          {pod: pod("Failed", "False", 0, false)},
		"ended, being deleted":           {pod: pod("Succeeded", "", 0, true)},
	} {
		if got := availability.Active(x.pod); got != x.active {
			t.Errorf("%s: active is %t", name, got)
		}
		if got := availability.Terminating(x.pod); got != x.terminating {
			t.Errorf("%s: terminating is %t", name, got)
		}
		if got := availability.Ready(x.pod); got != x.ready {
			t.Errorf("%s: ready is %t", name, got)
		}
		if got := availability.Available(x.pod, 10, now); got != x.available {
			t.Errorf("%s: available is %t", name, got)
		}
	}
	pods := []*corev1.Pod{pod("Running", "True", 995, false), pod("Running", "True", 993, false),
		pod("Running", "True", 900, false), pod("Running", "False", 999, false)}
	if got := availability.Next(pods, 10, now); got != 3*time.Second {
		t.Errorf("the next one is available in %s", got)
	}
	if got := availability.Next(pods[2:], 10, now); got != 0 {
		t.Errorf("none is to become available, in %s", got)
	}
}
