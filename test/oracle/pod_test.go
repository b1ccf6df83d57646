package oracle

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	ourpod "monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// intended says whether a difference is meant, because Kubernetes' path is wrong and ours is right.
func intended(diff string) bool {
	return strings.Contains(diff, ".downwarAPI: ") ||
		strings.Contains(diff, ".downwardAPI: Forbidden: may not specify more than 1") ||
		strings.Contains(diff, ".cephFS: ") || strings.Contains(diff, ".cephfs: Forbidden: may not specify more than 1") ||
		// Kubernetes names the first init container, whichever it is.
		strings.Contains(diff, "FieldValueDuplicate ") && strings.Contains(diff, "spec.initContainers[") &&
			strings.Contains(diff, ".hostPort") ||
		// Which values Kubernetes lists depends on that of the pod before. Monoplane's pods have none: the field is refused.
		strings.Contains(diff, ".seLinuxChangePolicy: Unsupported value: ") ||
		// The time of the SchedulingGated condition: ours is the time of creation, which this test does not set.
		strings.Contains(diff, ".status.conditions[0].lastTransitionTime")
}

// ordinary gives a pod what created gives Kubernetes' one in place of a priority class.
func ordinary(s *corev1.PodSpec) {
	if s.Priority == nil {
		s.Priority = ptr(int32(0))
	}
	if s.PreemptionPolicy == nil {
		s.PreemptionPolicy = ptr("PreemptLowerPriority")
	}
}

// sameCreation compares what both sides make of a pod that is created, and returns the differences.
func sameCreation(t *testing.T, k *v1.Pod) []string {
	t.Helper()
	want, errs := created(t, k)
	p := ourPod(t, k)
	ourpod.Default(p)
	ourpod.CompleteNew(p)
	ordinary(p.Spec)
	causes := ourpod.Validate(p)
	diff := compare(errs, ourFaults(causes))
	if len(errs) == 0 && len(causes) == 0 {
		w := ourPod(t, want)
		if !validation.Equal(w.Spec, p.Spec) || !validation.Equal(w.Status, p.Status) {
			diff = append(diff, stored(t, w, p)...)
		}
	}
	return diff
}

func report(t *testing.T, what []string, diff []string) bool {
	t.Helper()
	var unreadable []string // Lists with an address that Kubernetes cannot count, which it calls an internal error.
	for _, d := range diff {
		if name, ok := strings.CutPrefix(d, "only Kubernetes: InternalError "); ok {
			unreadable = append(unreadable, " "+strings.TrimSuffix(name, ": ")+": ")
		}
	}
	left := diff[:0]
	for _, d := range diff {
		counted := slices.ContainsFunc(unreadable, func(list string) bool { return strings.Contains(d, list) })
		if !counted && !intended(d) {
			left = append(left, d)
		}
	}
	if len(left) > 0 {
		t.Errorf("after %v:\n  %s", what, strings.Join(left, "\n  "))
	}
	return len(left) > 0
}

// spec: OBJ-3, OBJ-4, INIT-2, SPREAD-1, QOS-1
func TestPodsAreJudgedAlike(t *testing.T) {
	for _, base := range []func() *v1.Pod{minimal, rich, ofWindows} {
		if _, errs := created(t, base()); len(errs) > 0 {
			t.Fatalf("the base is not valid: %v", errs)
		}
		report(t, []string{"no change"}, sameCreation(t, base()))
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		base := rich
		switch r.IntN(5) {
		case 0:
			base = minimal
		case 1:
			base = ofWindows
		}
		k := base()
		what := alter(r, k, 1+r.IntN(4), nil)
		if report(t, what, sameCreation(t, k)) {
			bad++
		}
	}
}
