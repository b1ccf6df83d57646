package core

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/quota"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ResourceQuota describes the kind. What a quota does is in package admission/charge.
func ResourceQuota(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.ResourceQuota]{
		Kind:           corev1.ResourceQuotaKind,
		ReturnsDeleted: true,
		Default:        DefaultResourceQuota,
		Admit:          warnOfQuota,
		Validate:       ValidateResourceQuota,
		Main: registry.TypedUpdateRules[*corev1.ResourceQuota]{
			Validate: ValidateResourceQuotaUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.ResourceQuota]{
			"status": {Validate: ValidateResourceQuotaStatusUpdate},
		},
		// What is created is judged by what the cache has.
		ReadCached: true,
		Table: define.Columns[*corev1.ResourceQuota]{
			define.Text("Request", "What is used, and what may be, of all but limits.",
				func(q *corev1.ResourceQuota) string { return usedOf(q, false) }),
			define.Text("Limit", "What is used, and what may be, of limits.",
				func(q *corev1.ResourceQuota) string { return usedOf(q, true) }),
			define.Age[*corev1.ResourceQuota](),
		},
	}.Strategy()}
}

// usedOf is what is used of the resources that are limits, or are not.
func usedOf(q *corev1.ResourceQuota, limits bool) string {
	s := q.GetStatus()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.GetHard())) {
		if strings.HasPrefix(name, "limits.") == limits {
			used := cmp.Or(s.GetUsed()[name].GetString_(), "0")
			parts = append(parts, name+": "+used+"/"+s.GetHard()[name].GetString_())
		}
	}
	return strings.Join(parts, ", ")
}

// DefaultResourceQuota fills in a quota; call it on create, on update and on a status update.
func DefaultResourceQuota(q *corev1.ResourceQuota) {
	defaults.Message(&q.Metadata)
	defaults.Message(&q.Spec)
	defaults.Message(&q.Status)
	defaults.Round(q.Spec.Hard)
	defaults.Round(q.Status.Hard)
	defaults.Round(q.Status.Used)
}

// warnOfQuota warns of limits that are less than what may be requested.
func warnOfQuota(ctx context.Context, q *corev1.ResourceQuota) error {
	if !warning.Collected(ctx) {
		return nil
	}
	hard := q.GetSpec().GetHard()
	for _, name := range []string{resources.CPU, resources.Memory, resources.Storage, resources.EphemeralStorage} {
		requests, limits := "requests."+name, "limits."+name
		if _, ok := hard[requests]; !ok && (name == resources.CPU || name == resources.Memory) {
			requests = name
		}
		if hard[requests] == nil || hard[limits] == nil {
			continue
		}
		request, err := value.Quantity(hard[requests])
		if err != nil {
			continue // validation says so
		}
		limit, err := value.Quantity(hard[limits])
		if err == nil && request.Cmp(limit) > 0 {
			warning.Add(ctx, "ResourceQuota "+requests+" ("+request.String()+") should be less than "+limits+
				" ("+limit.String()+")")
		}
	}
	return nil
}

// ValidateResourceQuota checks a quota that is to be created.
func ValidateResourceQuota(q *corev1.ResourceQuota) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(q.GetMetadata(), nil, true, validation.NameIsSubdomain)
		checkQuota(f, q.GetSpec())
	}
	return f.Causes()
}

// ValidateResourceQuotaUpdate checks that a change of a quota is allowed: its scopes stay.
func ValidateResourceQuotaUpdate(new, old *corev1.ResourceQuota) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		checkQuota(f, new.GetSpec())
		if !maps.Equal(setOf(new.GetSpec().GetScopes()), setOf(old.GetSpec().GetScopes())) {
			f.InvalidValue(f.Root("spec").Child("scopes"), new.GetSpec().GetScopes(), "field is immutable")
		}
	}
	return f.Causes()
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// ValidateResourceQuotaStatusUpdate checks a change of a quota's status.
func ValidateResourceQuotaStatusUpdate(new, old *corev1.ResourceQuota) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		checkAmounts(f, f.Root("status").Child("hard"), new.GetStatus().GetHard())
		checkAmounts(f, f.Root("status").Child("used"), new.GetStatus().GetUsed())
	}
	return f.Causes()
}

func checkAmounts(f *validation.Faults, p *validation.Path, amounts map[string]*metav1.Quantity) {
	for _, name := range validation.Sorted(&validation.Few{}, amounts) {
		f.ResourceName(p.Key(name), name, validation.OfQuota)
		f.Amount(p.Key(name), name, amounts[name])
	}
}

func checkQuota(f *validation.Faults, s *corev1.ResourceQuotaSpec) {
	p := f.Root("spec")
	checkAmounts(f, p.Child("hard"), s.GetHard())
	checkScopes(f, p.Child("scopes"), s)
	if s.GetScopeSelector() != nil {
		checkScopeSelector(f, p.Child("scopeSelector").Child("matchExpressions"), s)
	}
}

func checkScopes(f *validation.Faults, p *validation.Path, s *corev1.ResourceQuotaSpec) {
	for _, scope := range s.GetScopes() {
		if !quota.IsScope(scope) {
			f.InvalidValue(p, s.GetScopes(), "unsupported scope")
		}
		if !limitsInScope(scope, s.GetHard()) {
			f.InvalidValue(p, s.GetScopes(), "unsupported scope applied to resource")
		}
	}
	if contradict(s.GetScopes()) {
		f.InvalidValue(p, s.GetScopes(), "conflicting scopes")
	}
}

func checkScopeSelector(f *validation.Faults, p *validation.Path, s *corev1.ResourceQuotaSpec) {
	var scopes []string
	for _, r := range s.GetScopeSelector().GetMatchExpressions() {
		scope := r.GetScopeName()
		scopes = append(scopes, scope)
		if !quota.IsScope(scope) {
			f.Invalid(p.Child("scopeName"), scope, "unsupported scope")
		}
		if !limitsInScope(scope, s.GetHard()) {
			f.Invalid(p, scope, "unsupported scope applied to resource")
		}
		switch scope {
		case quota.BestEffort, quota.NotBestEffort, quota.Terminating, quota.NotTerminating, quota.CrossNamespaceAffinity:
			if r.GetOperator() != quota.Exists {
				f.Invalid(p.Child("operator"), r.GetOperator(), "must be 'Exists' when scope is any of "+
					"ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "+
					"ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
			}
		}
		switch r.GetOperator() {
		case quota.In, quota.NotIn:
			if len(r.GetValues()) == 0 {
				f.Required(p.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case quota.Exists, quota.DoesNotExist:
			if len(r.GetValues()) > 0 {
				f.InvalidValue(p.Child("values"), r.GetValues(),
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			f.Invalid(p.Child("operator"), r.GetOperator(), "not a valid selector operator")
		}
	}
	if contradict(scopes) {
		f.InvalidValue(p, scopes, "conflicting scopes")
	}
}

// contradict says whether no object is in all of the scopes.
func contradict(scopes []string) bool {
	both := func(a, b string) bool { return slices.Contains(scopes, a) && slices.Contains(scopes, b) }
	return both(quota.BestEffort, quota.NotBestEffort) || both(quota.Terminating, quota.NotTerminating)
}

// limitsInScope says whether all that is limited is something that objects in the scope have.
func limitsInScope(scope string, hard map[string]*metav1.Quantity) bool {
	for name := range hard {
		if !strings.Contains(name, "/") && validation.QuotaResource(name) && !quota.InScope(scope, name) {
			return false
		}
	}
	return true
}
