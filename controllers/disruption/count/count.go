// Package count computes the status of a budget from its pods: how many of them there should be, how many are healthy,
// how many must be, and so how many may be evicted (spec: DISR-1).
//
// The numbers are those of Kubernetes' disruption controller, which test/oracle compares. The package knows no client,
// no cache and no clock, and changes nothing that it is given.
package count

import (
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/portion"
)

// Memory is how long an evicted pod that is not seen going counts as gone.
const Memory = 2 * time.Minute

// Result is the status of a budget, and what follows from it.
type Result struct {
	Status *policyv1.PodDisruptionBudgetStatus
	// Overdue are the pods that were evicted longer than Memory ago and are still there. They count again.
	Overdue []*corev1.Pod
	// Again is when an evicted pod is overdue unless it goes before; zero for none.
	Again time.Time
}

// ByScale says whether a budget is about the replicas that the controllers of its pods are to have, and not about the
// pods that are there.
func ByScale(b *policyv1.PodDisruptionBudget) bool {
	s := b.GetSpec()
	return s.GetMaxUnavailable() != nil || portion.IsPercentage(s.GetMinAvailable())
}

// Of counts. The pods are all that the budget selects; scale is how many replicas their controllers are to have in
// all, for budgets ByScale.
func Of(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, scale int32, now time.Time) (Result, error) {
	expected, desired, err := wanted(b, int32(len(pods)), scale)
	if err != nil {
		return Result{}, err
	}
	var r Result
	disrupted, healthy := map[string]*metav1.Time{}, int32(0)
	for _, p := range pods {
		m := p.GetMetadata()
		if m.GetDeletionTimestamp() != nil {
			continue
		}
		if at := b.GetStatus().GetDisruptedPods()[m.GetName()]; at != nil {
			end := value.GoTime(at).Add(Memory)
			if end.Before(now) {
				r.Overdue = append(r.Overdue, p)
			} else {
				disrupted[m.GetName()] = at
				if r.Again.IsZero() || end.Before(r.Again) {
					r.Again = end
				}
			}
			if end.After(now) {
				continue
			}
		}
		if disruption.Healthy(p) {
			healthy++
		}
	}
	r.Status = &policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.GetMetadata().GetGeneration(), CurrentHealthy: healthy, DesiredHealthy: desired,
		ExpectedPods: expected, Conditions: b.GetStatus().GetConditions(),
	}
	if len(disrupted) > 0 {
		r.Status.DisruptedPods = disrupted
	}
	// With no pods expected there is nothing to be evicted, and the first one that comes is safe until it is counted.
	if expected > 0 && healthy > desired {
		r.Status.DisruptionsAllowed = healthy - desired
	}
	disruption.SetAllowed(r.Status, now)
	return r, nil
}

// wanted returns how many pods there should be, and how many of them healthy.
func wanted(b *policyv1.PodDisruptionBudget, pods, scale int32) (expected, desired int32, err error) {
	s := b.GetSpec()
	switch {
	case s.GetMaxUnavailable() != nil:
		n, err := portion.Up(s.GetMaxUnavailable(), int(scale))
		return scale, max(0, scale-int32(n)), err
	case s.GetMinAvailable() == nil:
		return 0, 0, nil
	case portion.IsPercentage(s.GetMinAvailable()):
		n, err := portion.Up(s.GetMinAvailable(), int(scale))
		return scale, int32(n), err
	default:
		return pods, s.GetMinAvailable().GetIntVal(), nil
	}
}

// Same says whether a status need not be written again.
func Same(a, b *policyv1.PodDisruptionBudgetStatus) bool { return proto.Equal(a, b) }
