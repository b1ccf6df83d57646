package phase_test

import (
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/phase"
)

// spec: LIFE-10
func TestTerminal(t *testing.T) {
	for name, want := range map[string]bool{"": false, "Pending": false, "Running": false, "Unknown": false,
		"Succeeded": true, "Failed": true, "failed": false} {
		if got := phase.Terminal(&corev1.Pod{Status: &corev1.PodStatus{Phase: name}}); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	if phase.Terminal(nil) || phase.Terminal(&corev1.Pod{}) {
		t.Error("a pod without a status has ended")
	}
}

// spec: LIFE-1, LIFE-10
func TestFollows(t *testing.T) {
	allowed := map[string][]string{
		"":          {"Pending", "Running", "Succeeded", "Failed"},
		"Unknown":   {"Pending", "Running", "Succeeded", "Failed"},
		"Pending":   {"Running", "Succeeded", "Failed"},
		"Running":   {"Succeeded", "Failed"},
		"Succeeded": {},
		"Failed":    {},
	}
	all := []string{"", "Unknown", "Pending", "Running", "Succeeded", "Failed", "Other"}
	for was, next := range allowed {
		for _, now := range all {
			if got, want := phase.Follows(was, now), now == was || slices.Contains(next, now); got != want {
				t.Errorf("from %q to %q: %v, want %v", was, now, got, want)
			}
		}
	}
}

func TestAllIsACopy(t *testing.T) {
	phase.All()[0] = "x"
	if !slices.Equal(phase.All(), []string{"Pending", "Running", "Succeeded", "Failed"}) {
		t.Error(phase.All())
	}
}
