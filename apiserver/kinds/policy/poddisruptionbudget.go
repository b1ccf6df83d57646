// Package policy describes the kinds of group policy.
package policy

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/portion"

	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
)

// PodDisruptionBudget describes the kind. What a budget does is in the eviction of pods, which counts it down.
func PodDisruptionBudget(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*policyv1.PodDisruptionBudget]{
		Kind:            policyv1.PodDisruptionBudgetKind,
		RequireRevision: true,
		Spec:            func(b *policyv1.PodDisruptionBudget) proto.Message { return b.GetSpec() },
		Default:         DefaultPodDisruptionBudget,
		DefaultNew:      DefaultNewPodDisruptionBudget,
		Validate:        ValidatePodDisruptionBudget,
		Main: registry.TypedUpdateRules[*policyv1.PodDisruptionBudget]{
			Validate: ValidatePodDisruptionBudgetUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*policyv1.PodDisruptionBudget]{
			"status": {
				Validate: ValidatePodDisruptionBudgetStatusUpdate,
			},
		},
		Table: define.Columns[*policyv1.PodDisruptionBudget]{
			define.Text("Min Available", "How many of the pods must be left.",
				func(b *policyv1.PodDisruptionBudget) string { return shown(b.GetSpec().GetMinAvailable()) }),
			define.Text("Max Unavailable", "How many of the pods may be missing.",
				func(b *policyv1.PodDisruptionBudget) string { return shown(b.GetSpec().GetMaxUnavailable()) }),
			define.Integer("Allowed Disruptions", "How many pods may be evicted now.",
				func(b *policyv1.PodDisruptionBudget) int64 { return int64(b.GetStatus().GetDisruptionsAllowed()) }),
			define.Age[*policyv1.PodDisruptionBudget](),
		},
	}.Strategy()}
}

// shown is a number or a percentage as the table has it.
func shown(v *metav1.IntOrString) string {
	switch {
	case v == nil:
		return "N/A"
	case portion.IsPercentage(v):
		return v.GetStrVal()
	default:
		return strconv.Itoa(int(v.GetIntVal()))
	}
}

// DefaultPodDisruptionBudget fills in a budget; call it on create, on update and on a status update.
func DefaultPodDisruptionBudget(b *policyv1.PodDisruptionBudget) {
	defaults.Message(&b.Metadata)
	defaults.Message(&b.Spec)
	defaults.Message(&b.Status)
}

// DefaultNewPodDisruptionBudget is DefaultPodDisruptionBudget with a fresh status, by which nothing may be evicted.
func DefaultNewPodDisruptionBudget(b *policyv1.PodDisruptionBudget) {
	b.Status = nil
	DefaultPodDisruptionBudget(b)
}

// ValidatePodDisruptionBudget checks a budget that is to be created.
func ValidatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkBudget(f, b)
	}
	return f.Causes()
}

// ValidatePodDisruptionBudgetUpdate checks that a change of a budget is allowed: all of its spec may change.
func ValidatePodDisruptionBudgetUpdate(new, old *policyv1.PodDisruptionBudget) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkBudget(f, new)
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	}
	return f.Causes()
}

// ValidatePodDisruptionBudgetStatusUpdate checks a change of a budget's status.
func ValidatePodDisruptionBudgetStatusUpdate(new, old *policyv1.PodDisruptionBudget) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		s, p := new.GetStatus(), f.Root("status")
		f.Conditions(p.Child("conditions"), s.GetConditions())
		f.NotNegative(p.Child("disruptionsAllowed"), int64(s.GetDisruptionsAllowed()))
		f.NotNegative(p.Child("currentHealthy"), int64(s.GetCurrentHealthy()))
		f.NotNegative(p.Child("desiredHealthy"), int64(s.GetDesiredHealthy()))
		f.NotNegative(p.Child("expectedPods"), int64(s.GetExpectedPods()))
	}
	return f.Causes()
}

func checkBudget(f *validation.Faults, b *policyv1.PodDisruptionBudget) {
	f.ObjectMeta(b.GetMetadata(), true, validation.NameIsPathSegment)
	s, p := b.GetSpec(), f.Root("spec")
	if s.GetMinAvailable() != nil && s.GetMaxUnavailable() != nil {
		f.Invalid(p, "minAvailable "+shown(s.GetMinAvailable())+", maxUnavailable "+shown(s.GetMaxUnavailable()),
			"minAvailable and maxUnavailable cannot be both set")
	}
	checkPortion(f, p.Child("minAvailable"), s.GetMinAvailable())
	checkPortion(f, p.Child("maxUnavailable"), s.GetMaxUnavailable())
	if s.GetSelector() != nil {
		f.LabelSelector(p.Child("selector"), s.GetSelector())
	}
	if s != nil && s.UnhealthyPodEvictionPolicy != nil {
		f.OneOf(p.Child("unhealthyPodEvictionPolicy"), *s.UnhealthyPodEvictionPolicy,
			disruption.AlwaysAllow, ifHealthyBudget)
	}
}

func checkPortion(f *validation.Faults, p *validation.Path, v *metav1.IntOrString) {
	if v == nil {
		return
	}
	f.Portion(p, v)
	f.AtMostAll(p, v)
}

// ifHealthyBudget is what the absence of unhealthyPodEvictionPolicy means, in so many words.
const ifHealthyBudget = "IfHealthyBudget"
