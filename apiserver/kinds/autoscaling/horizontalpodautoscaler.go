// Package autoscaling describes the kinds of group autoscaling.
package autoscaling

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
)

// HorizontalPodAutoscaler describes the kind.
func HorizontalPodAutoscaler(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*autoscalingv2.HorizontalPodAutoscaler]{
		Kind:     autoscalingv2.HorizontalPodAutoscalerKind,
		Default:  DefaultHorizontalPodAutoscaler,
		Validate: ValidateHorizontalPodAutoscaler,
		Main: registry.TypedUpdateRules[*autoscalingv2.HorizontalPodAutoscaler]{
			Validate: ValidateHorizontalPodAutoscalerUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*autoscalingv2.HorizontalPodAutoscaler]{
			"status": {Validate: ValidateHorizontalPodAutoscalerStatus},
		},
		Table: define.Columns[*autoscalingv2.HorizontalPodAutoscaler]{
			define.Text("Reference", "What is scaled.", func(o *autoscalingv2.HorizontalPodAutoscaler) string {
				ref := o.GetSpec().GetScaleTargetRef()
				return ref.GetKind() + "/" + ref.GetName()
			}),
			define.Text("Targets", "What is measured, and what it should be.",
				func(o *autoscalingv2.HorizontalPodAutoscaler) string {
					return targets(o.GetSpec().GetMetrics(), o.GetStatus().GetCurrentMetrics())
				}),
			define.Text("MinPods", "How many replicas there are at least.",
				func(o *autoscalingv2.HorizontalPodAutoscaler) string {
					if o.GetSpec() == nil || o.Spec.MinReplicas == nil {
						return define.OrUnset("")
					}
					return strconv.Itoa(int(o.GetSpec().GetMinReplicas()))
				}),
			define.Any("MaxPods", "How many replicas there are at most.",
				func(o *autoscalingv2.HorizontalPodAutoscaler) any { return int64(o.GetSpec().GetMaxReplicas()) }),
			define.Any("Replicas", "How many replicas the object is to have.",
				func(o *autoscalingv2.HorizontalPodAutoscaler) any { return int64(o.GetStatus().GetCurrentReplicas()) }),
			define.Age[*autoscalingv2.HorizontalPodAutoscaler](),
		},
	}.Strategy()}
}

// The policies that say which of several limits counts.
const (
	selectMax      = "Max"
	selectMin      = "Min"
	selectDisabled = "Disabled"
)

// The units of a limit.
const (
	inPods    = "Pods"
	inPercent = "Percent"
)

const (
	// defaultUtilization is the percentage of the cpu that pods request which is held when nothing else is asked for.
	defaultUtilization = 80
	// defaultPeriod is the period of the limits when none are given, in seconds.
	defaultPeriod = 15
	// maxPeriod and maxWindow bound the period of a limit and the window of stabilization, in seconds.
	maxPeriod = 1800
	maxWindow = 3600
)

// defaultMetrics are what an autoscaler goes by that names none.
func defaultMetrics() []*autoscalingv2.MetricSpec {
	return []*autoscalingv2.MetricSpec{{
		Type: resourceSource,
		Resource: &autoscalingv2.ResourceMetricSource{Name: resources.CPU, Target: &autoscalingv2.MetricTarget{
			Type: utilization, AverageUtilization: proto.Int32(defaultUtilization),
		}},
	}}
}

// DefaultHorizontalPodAutoscaler fills in an autoscaler. How long going down waits is left to the controller.
func DefaultHorizontalPodAutoscaler(o *autoscalingv2.HorizontalPodAutoscaler) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaults.Message(&s.ScaleTargetRef)
	defaults.SetPtr(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		s.Metrics = defaultMetrics()
	}
	for _, m := range s.Metrics {
		defaultMetric(m)
	}
	if s.Behavior == nil {
		return
	}
	percent := &autoscalingv2.HPAScalingPolicy{Type: inPercent, Value: 100, PeriodSeconds: defaultPeriod}
	up := defaultRules(&s.Behavior.ScaleUp,
		&autoscalingv2.HPAScalingPolicy{Type: inPods, Value: 4, PeriodSeconds: defaultPeriod}, percent)
	defaults.SetPtr(&up.StabilizationWindowSeconds, 0)
	defaultRules(&s.Behavior.ScaleDown, object.Clone(percent))
}

func defaultRules(
	r **autoscalingv2.HPAScalingRules, policies ...*autoscalingv2.HPAScalingPolicy,
) *autoscalingv2.HPAScalingRules {
	defaults.Message(r)
	defaults.SetPtr(&(*r).SelectPolicy, selectMax)
	if len((*r).Policies) == 0 {
		(*r).Policies = policies
	}
	canonical((*r).Tolerance)
	return *r
}

// canonical brings an amount into canonical form. What cannot be read is left to validation.
func canonical(q *metav1.Quantity) {
	if q == nil {
		return
	}
	if v, err := value.Quantity(q); err == nil {
		q.String_ = v.String()
	}
}

// ValidateHorizontalPodAutoscaler checks an autoscaler that is to be created.
func ValidateHorizontalPodAutoscaler(o *autoscalingv2.HorizontalPodAutoscaler) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkAutoscaler(f, o, nil)
	}
	return f.Causes()
}

// ValidateHorizontalPodAutoscalerUpdate checks that a change of an autoscaler is allowed. A reference that it has
// already may stay, whatever it is like.
func ValidateHorizontalPodAutoscalerUpdate(new, old *autoscalingv2.HorizontalPodAutoscaler) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkAutoscaler(f, new, old)
	}
	return f.Causes()
}

// ValidateHorizontalPodAutoscalerStatus checks a change of an autoscaler's status.
func ValidateHorizontalPodAutoscalerStatus(new, old *autoscalingv2.HorizontalPodAutoscaler) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		s, at := new.GetStatus(), f.Root("status")
		f.NotNegative(at.Child("currentReplicas"), int64(s.GetCurrentReplicas()))
		f.NotNegative(at.Child("desiredReplicas"), int64(s.GetDesiredReplicas()))
	}
	return f.Causes()
}

func checkAutoscaler(f *validation.Faults, o, old *autoscalingv2.HorizontalPodAutoscaler) {
	f.CoreMeta(o.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	s, was, at := o.GetSpec(), old.GetSpec(), f.Root("spec")
	least := int32(1)
	if was != nil && was.MinReplicas != nil && *was.MinReplicas == 0 {
		least = 0
	}
	if s != nil && s.MinReplicas != nil {
		if *s.MinReplicas < least {
			f.InvalidValue(at.Child("minReplicas"), *s.MinReplicas, fmt.Sprint("must be greater than or equal to ", least))
		}
		if s.GetMaxReplicas() < *s.MinReplicas {
			f.InvalidValue(at.Child("maxReplicas"), s.GetMaxReplicas(), "must be greater than or equal to `minReplicas`")
		}
	}
	switch n := s.GetMaxReplicas(); {
	case n == 0:
		f.Required(at.Child("maxReplicas"), "must be set and greater than 0")
	case n < 0:
		f.InvalidValue(at.Child("maxReplicas"), n, "must be greater than or equal to 1")
	}
	ref, before := s.GetScaleTargetRef(), was.GetScaleTargetRef()
	rules := referenceRules{
		// Only group core has a scalable kind without a group in its version.
		emptyGroup: ref.GetKind() == "ReplicationController",
		anyVersion: old != nil && ref.GetApiVersion() == before.GetApiVersion() && ref.GetKind() == before.GetKind(),
	}
	checkReference(f, at.Child("scaleTargetRef"), ref, rules)
	checkMetrics(f, at.Child("metrics"), s, was)
	checkRules(f, at.Child("behavior").Child("scaleUp"), s.GetBehavior().GetScaleUp())
	checkRules(f, at.Child("behavior").Child("scaleDown"), s.GetBehavior().GetScaleDown())
}

// referenceRules say what the version in a reference may be.
type referenceRules struct {
	// emptyGroup is true when it may have no group, anyVersion when it is not looked at.
	emptyGroup, anyVersion bool
}

// wrongVersion says what is wrong with the version in a reference.
func (r referenceRules) wrongVersion(version string) error {
	if r.anyVersion {
		return nil
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return err
	}
	if gv.Group == "" && !r.emptyGroup {
		return errors.New("apiVersion must specify API group")
	}
	return nil
}

func checkReference(
	f *validation.Faults, at *validation.Path, ref *autoscalingv2.CrossVersionObjectReference, rules referenceRules,
) {
	checkSegment(f, at.Child("kind"), ref.GetKind(), "")
	checkSegment(f, at.Child("name"), ref.GetName(), "")
	if err := rules.wrongVersion(ref.GetApiVersion()); err != nil {
		f.Invalid(at.Child("apiVersion"), ref.GetApiVersion(), err.Error())
	}
}

// checkSegment checks a name that becomes part of a path; missing is said when there is none.
func checkSegment(f *validation.Faults, at *validation.Path, name, missing string) {
	if name == "" {
		f.Required(at, missing)
		return
	}
	f.Invalid(at, name, validation.NameIsPathSegment(name, false)...)
}

func checkRules(f *validation.Faults, at *validation.Path, r *autoscalingv2.HPAScalingRules) {
	if r == nil {
		return
	}
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		f.InvalidValue(at.Child("stabilizationWindowSeconds"), *w, "must be greater than or equal to zero")
	} else if w != nil && *w > maxWindow {
		f.InvalidValue(at.Child("stabilizationWindowSeconds"), *w, fmt.Sprint("must be less than or equal to ", maxWindow))
	}
	if r.SelectPolicy != nil {
		f.OneOf(at.Child("selectPolicy"), *r.SelectPolicy, selectDisabled, selectMax, selectMin)
	}
	policies := at.Child("policies")
	if len(r.GetPolicies()) == 0 {
		f.Required(policies, "must specify at least one Policy")
	}
	for i, p := range r.GetPolicies() {
		at := policies.Index(i)
		f.OneOf(at.Child("type"), p.GetType(), inPercent, inPods)
		if p.GetValue() <= 0 {
			f.InvalidValue(at.Child("value"), p.GetValue(), "must be greater than zero")
		}
		if p.GetPeriodSeconds() <= 0 {
			f.InvalidValue(at.Child("periodSeconds"), p.GetPeriodSeconds(), "must be greater than zero")
		}
		if p.GetPeriodSeconds() > maxPeriod {
			f.InvalidValue(at.Child("periodSeconds"), p.GetPeriodSeconds(),
				fmt.Sprint("must be less than or equal to ", maxPeriod))
		}
	}
	if r.GetTolerance() != nil {
		f.Amount(at.Child("tolerance"), "", r.GetTolerance())
	}
}
