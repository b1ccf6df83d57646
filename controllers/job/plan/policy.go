package plan

import (
	"fmt"
	"slices"

	"monoplane.dev/rules/indexes"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// Verdict is what a pod failure policy says of a failed pod.
type Verdict struct {
	// Action is that of the rule that fits; empty when none does.
	Action string
	// Counts says that the failure counts towards the limits.
	Counts bool
	// Message is why the Job fails; empty when it does not.
	Message string
}

// Judge returns what a policy, nil for none, says of a failed pod: what the first rule says that fits.
func Judge(policy *batchv1.PodFailurePolicy, p *corev1.Pod) Verdict {
	for i, r := range policy.GetRules() {
		fits := ""
		switch m := p.GetMetadata(); {
		case r.GetOnExitCodes() != nil:
			if s := exited(p.GetStatus(), r.GetOnExitCodes()); s != nil {
				fits = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
					s.GetName(), m.GetNamespace(), m.GetName(), s.GetState().GetTerminated().GetExitCode(), r.GetAction(), i)
			}
		default:
			if c := conditioned(p.GetStatus(), r.GetOnPodConditions()); c != nil {
				fits = fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d",
					m.GetNamespace(), m.GetName(), c.GetType(), r.GetAction(), i)
			}
		}
		if fits == "" {
			continue
		}
		switch a := r.GetAction(); a {
		case jobs.Ignore:
			return Verdict{Action: a}
		case jobs.FailIndex, jobs.Count:
			return Verdict{Action: a, Counts: true}
		case jobs.FailJob:
			return Verdict{Action: a, Counts: true, Message: fits}
		}
	}
	return Verdict{Counts: true}
}

// exited returns the first container that ended with an exit code that a rule names; nil for none.
func exited(s *corev1.PodStatus, r *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]*corev1.ContainerStatus{s.GetContainerStatuses(), s.GetInitContainerStatuses()} {
		for _, c := range list {
			ended := c.GetState().GetTerminated()
			if ended == nil || ended.GetExitCode() == 0 || r.ContainerName != nil && *r.ContainerName != c.GetName() {
				continue
			}
			named := slices.Contains(r.GetValues(), ended.GetExitCode())
			if r.GetOperator() == jobs.In && named || r.GetOperator() == jobs.NotIn && !named {
				return c
			}
		}
	}
	return nil
}

// conditioned returns the first condition that a rule names; nil for none.
func conditioned(
	s *corev1.PodStatus, patterns []*batchv1.PodFailurePolicyOnPodConditionsPattern,
) *corev1.PodCondition {
	for _, c := range s.GetConditions() {
		for _, p := range patterns {
			if c.GetType() == p.GetType() && c.GetStatus() == p.GetStatus() {
				return c
			}
		}
	}
	return nil
}

// Met returns which rule of a success policy, nil for none, is met when these indexes have succeeded.
func Met(policy *batchv1.SuccessPolicy, completions int32, succeeded indexes.Set) (rule int, ok bool) {
	if len(succeeded) == 0 {
		return 0, false
	}
	for i, r := range policy.GetRules() {
		switch {
		case r.SucceededIndexes != nil:
			listed := indexes.Read(*r.SucceededIndexes, completions)
			n, _ := listed.Common(succeeded)
			if len(listed) > 0 && (n == listed.Len() || r.SucceededCount != nil && n >= *r.SucceededCount) {
				return i, true
			}
		case r.SucceededCount != nil:
			if succeeded.Len() >= *r.SucceededCount {
				return i, true
			}
		}
	}
	return 0, false
}
