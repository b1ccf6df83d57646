package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// What a LimitRange limits.
const (
	limitContainer = "Container"
	limitPod       = "Pod"
	limitClaim     = "PersistentVolumeClaim"
)

// LimitRange describes the kind. What a range does is in package admission/limits.
func LimitRange(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.LimitRange]{
		Kind:           corev1.LimitRangeKind,
		CreateOnUpdate: true,
		Default:        DefaultLimitRange,
		Validate:       ValidateLimitRange,
		Main: registry.TypedUpdateRules[*corev1.LimitRange]{
			Validate: func(new, old *corev1.LimitRange) []apierrors.Cause { return validateLimitRange(new, old) },
		},
		// Pods and claims are judged by what the cache has.
		ReadCached: true,
		Table: define.Columns[*corev1.LimitRange]{
			define.Text("Created At", "When the range was created.", func(o *corev1.LimitRange) string {
				t := o.GetMetadata().GetCreationTimestamp()
				return validation.GoTime(t).Format(time.RFC3339)
			}),
		},
	}.Strategy()}
}

// DefaultLimitRange completes what containers get that ask for nothing: the most is their limit, the limit their
// request, and the least their request where there is no limit.
func DefaultLimitRange(r *corev1.LimitRange) {
	defaults.Message(&r.Metadata)
	defaults.Message(&r.Spec)
	for _, item := range r.Spec.Limits {
		if item == nil {
			continue // validation says so
		}
		for _, m := range []map[string]*metav1.Quantity{
			item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio,
		} {
			defaults.Round(m)
		}
		if item.GetType() != limitContainer {
			continue
		}
		item.Default = completed(item.Default, item.Max)
		item.DefaultRequest = completed(item.DefaultRequest, item.Default)
		item.DefaultRequest = completed(item.DefaultRequest, item.Min)
	}
}

// completed adds to amounts what only more has.
func completed(amounts, more map[string]*metav1.Quantity) map[string]*metav1.Quantity {
	for name, q := range more {
		if _, ok := amounts[name]; ok {
			continue
		}
		if amounts == nil {
			amounts = make(map[string]*metav1.Quantity, len(more))
		}
		amounts[name] = defaults.CloneQuantity(q)
	}
	return amounts
}

// ValidateLimitRange checks a range that is to be created.
func ValidateLimitRange(r *corev1.LimitRange) []apierrors.Cause { return validateLimitRange(r, nil) }

func validateLimitRange(r, old *corev1.LimitRange) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(r.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		limits := f.Root("spec").Child("limits")
		var types []string
		for i, item := range r.GetSpec().GetLimits() {
			p := limits.Index(i)
			checkLimitType(f, p.Child("type"), item.GetType())
			if slices.Contains(types, item.GetType()) {
				f.Duplicate(p.Child("type"), item.GetType())
			}
			types = append(types, item.GetType())
			checkLimits(f, p, item)
		}
	}
	return f.Causes()
}

func checkLimitType(f *validation.Faults, p *validation.Path, name string) {
	switch name {
	case limitContainer, limitPod, limitClaim:
		return
	}
	if wrong := utilvalidation.IsQualifiedName(name); len(wrong) > 0 {
		f.Invalid(p, name, wrong...)
	} else if !slices.Contains([]byte(name), '/') {
		f.Invalid(p, name, "must be a standard limit type or fully qualified")
	}
}

// limits are the amounts of one item, as far as they can be read.
type limits struct {
	f    *validation.Faults
	p    *validation.Path
	item *corev1.LimitRangeItem
	// names are those of all resources.
	names map[string]bool
}

// read checks the names of amounts and returns those that can be read.
func (l limits) read(field string, amounts map[string]*metav1.Quantity) map[string]resource.Quantity {
	out := make(map[string]resource.Quantity, len(amounts))
	for _, name := range validation.Sorted(&validation.Few{}, amounts) {
		at := l.p.Child(field).Key(name)
		switch l.item.GetType() {
		case limitContainer, limitPod:
			l.f.ResourceName(at, name, validation.OfContainer)
		default:
			l.f.ResourceName(at, name, validation.OfNamespace)
		}
		q, ok := l.f.Readable(at, amounts[name])
		if ok {
			out[name], l.names[name] = q, true
		}
	}
	return out
}

// checkLimits checks the amounts of one item, and that they leave room for each other.
func checkLimits(f *validation.Faults, p *validation.Path, item *corev1.LimitRangeItem) {
	l := limits{f: f, p: p, item: item, names: map[string]bool{}}
	most, least := l.read("max", item.GetMax()), l.read("min", item.GetMin())
	var limit, request map[string]resource.Quantity
	if item.GetType() == limitPod {
		const never = "may not be specified when `type` is 'Pod'"
		if len(item.GetDefault()) > 0 {
			f.Forbidden(p.Child("default"), never)
		}
		if len(item.GetDefaultRequest()) > 0 {
			f.Forbidden(p.Child("defaultRequest"), never)
		}
	} else {
		limit, request = l.read("default", item.GetDefault()), l.read("defaultRequest", item.GetDefaultRequest())
	}
	if item.GetType() == limitClaim {
		_, hasLeast := item.GetMin()[resources.Storage]
		_, hasMost := item.GetMax()[resources.Storage]
		if !hasLeast && !hasMost {
			f.Required(p.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	ratio := l.read("maxLimitRequestRatio", item.GetMaxLimitRequestRatio())
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		l.inOrder("min", name, amounts{"min", least}, amounts{"max", most})
		l.inOrder("defaultRequest", name, amounts{"min", least}, amounts{"default request", request})
		l.inOrder("defaultRequest", name, amounts{"default request", request}, amounts{"max", most})
		l.inOrder("defaultRequest", name, amounts{"default request", request}, amounts{"default limit", limit})
		l.inOrder("default", name, amounts{"min", least}, amounts{"default", limit})
		l.inOrder("default", name, amounts{"default", limit}, amounts{"max", most})
		l.ratio(name, ratio, least, most)
		a, hasLimit := limit[name]
		b, hasRequest := request[name]
		if hasLimit && hasRequest && !resources.CanOvercommit(name) && a.Cmp(b) != 0 {
			f.Invalid(p.Child("defaultRequest").Key(name), b.String(),
				fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", a.String(), b.String(), name))
		}
	}
}

// amounts are those of one field, with what messages call them.
type amounts struct {
	name string
	of   map[string]resource.Quantity
}

// inOrder checks that the amount of a resource in low is at most that in high.
func (l limits) inOrder(field, name string, low, high amounts) {
	a, hasLow := low.of[name]
	b, hasHigh := high.of[name]
	if hasLow && hasHigh && a.Cmp(b) > 0 {
		shown := a
		if field == "defaultRequest" && high.name == "default request" {
			shown = b
		}
		if field == "default" && high.name == "max" {
			shown = b // as in Kubernetes
		}
		l.f.Invalid(l.p.Child(field).Key(name), shown.String(),
			fmt.Sprintf("%s value %s is greater than %s value %s", low.name, a.String(), high.name, b.String()))
	}
}

// ratio checks that a limit can be as many times the request as it may be.
func (l limits) ratio(name string, ratios, least, most map[string]resource.Quantity) {
	r, ok := ratios[name]
	if !ok {
		return
	}
	at := l.p.Child("maxLimitRequestRatio").Key(name)
	if r.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		l.f.Invalid(at, r.String(), fmt.Sprintf("ratio %s is less than 1", r.String()))
	}
	low, hasLow := least[name]
	high, hasHigh := most[name]
	if !hasLow || !hasHigh {
		return
	}
	value, from, to := float64(r.Value()), low.Value(), high.Value()
	if max(r.Value(), from, to) < resource.MaxMilliValue {
		value, from, to = float64(r.MilliValue())/1000, low.MilliValue(), high.MilliValue()
	}
	if widest := float64(to) / float64(from); value > widest {
		l.f.Invalid(at, r.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", r.String(), widest))
	}
}
