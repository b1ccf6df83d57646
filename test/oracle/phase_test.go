package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/rules/phase"
)

// spec: LIFE-10
func TestTheSamePodsHaveEnded(t *testing.T) {
	r := random(t)
	for range *count {
		k := minimal()
		k.Status.Phase = v1.PodPhase(pick(r, append(phase.All(), phase.Unknown, pick(r, words))))
		if want, got := ask[bool](t, "ended-pods", k), phase.Terminal(ourPod(t, k)); got != want {
			t.Fatalf("phase %q: ended is %v for Kubernetes, %v for Monoplane", k.Status.Phase, want, got)
		}
	}
}
