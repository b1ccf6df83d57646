// Package disruption has what the API server, which counts a budget down when it evicts a pod, and the disruption
// controller, which counts it anew, must see alike: which pods a budget is about, which of them are healthy, and what
// its status says of that (spec: DISR-1, DISR-2). It has the words of condition DisruptionTarget, too (spec: DISR-4).
//
// What it has a status say is what Kubernetes has, which test/oracle compares. It knows no client, no store and no
// clock, and changes nothing that it is given but the status that a function is about.
package disruption

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/codec/value"
	"monoplane.dev/rules/labelselector"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

// Target is the type of the condition of a pod that has to go, or went, although it did nothing wrong itself.
const Target = "DisruptionTarget"

// Why a pod has condition Target; there are no other reasons (spec: DISR-4).
const (
	// ByPreemption: its room is needed for a pod of higher priority.
	ByPreemption = "PreemptionByScheduler"
	// ByTaint: its node has a taint that it does not tolerate.
	ByTaint = "DeletionByTaintManager"
	// ByEviction: somebody has asked for its eviction.
	ByEviction = "EvictionByEvictionAPI"
	// ByPodGC: its node does not exist any more.
	ByPodGC = "DeletionByPodGC"
	// ByKubelet: its node has run out of something, or goes down.
	ByKubelet = "TerminationByKubelet"
)

// Allowed is the type of the condition of a budget that says whether pods may be evicted.
const Allowed = "DisruptionAllowed"

// The reasons of condition Allowed.
const (
	Sufficient   = "SufficientPods"
	Insufficient = "InsufficientPods"
	// SyncFailed says that the controller could not count; the message says why.
	SyncFailed = "SyncFailed"
)

// AlwaysAllow is the policy by which running pods that are not ready may always be evicted.
const AlwaysAllow = "AlwaysAllow"

// Selects says whether a budget is about the pods of its namespace that have these labels.
func Selects(b *policyv1.PodDisruptionBudget, of map[string]string) bool {
	return labelselector.OrNothing(b.GetSpec().GetSelector()).Matches(labels.Set(of))
}

// Healthy says whether a pod is one of those that a budget keeps: it is ready.
func Healthy(p *corev1.Pod) bool {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}

// SetAllowed makes condition Allowed say what the status says in numbers. The list of conditions is replaced, not
// changed.
func SetAllowed(s *policyv1.PodDisruptionBudgetStatus, now time.Time) {
	c := &metav1.Condition{
		Type: Allowed, Status: "False", Reason: Insufficient, ObservedGeneration: s.GetObservedGeneration(),
	}
	if s.GetDisruptionsAllowed() > 0 {
		c.Status, c.Reason = "True", Sufficient
	}
	set(s, c, now)
}

// Fail makes the status say that nothing may be evicted, because the pods could not be counted.
func Fail(s *policyv1.PodDisruptionBudgetStatus, why string, now time.Time) {
	s.DisruptionsAllowed = 0
	set(s, &metav1.Condition{
		Type: Allowed, Status: "False", Reason: SyncFailed, Message: why, ObservedGeneration: s.GetObservedGeneration(),
	}, now)
}

// Condition returns condition Allowed; nil for none.
func Condition(s *policyv1.PodDisruptionBudgetStatus) *metav1.Condition {
	if i := index(s); i >= 0 {
		return s.Conditions[i]
	}
	return nil
}

// set puts c in place of the condition of its type; its status began now unless the old one was the same.
func set(s *policyv1.PodDisruptionBudgetStatus, c *metav1.Condition, now time.Time) {
	c.LastTransitionTime = value.Time(now)
	i := index(s)
	if i < 0 {
		s.Conditions = append(slices.Clip(s.Conditions), c)
		return
	}
	if old := s.Conditions[i]; old.GetStatus() == c.GetStatus() {
		c.LastTransitionTime = old.GetLastTransitionTime()
	}
	s.Conditions = slices.Clone(s.Conditions)
	s.Conditions[i] = c
}

func index(s *policyv1.PodDisruptionBudgetStatus) int {
	return slices.IndexFunc(s.GetConditions(), func(c *metav1.Condition) bool { return c.GetType() == Allowed })
}
