package autoscaling

import (
	"fmt"
	"strings"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
)

// What can be measured.
const (
	objectSource    = "Object"
	podsSource      = "Pods"
	resourceSource  = "Resource"
	containerSource = "ContainerResource"
	externalSource  = "External"
)

// The ways to say what something should be.
const (
	utilization = "Utilization"
	wholeValue  = "Value"
	average     = "AverageValue"
)

// defaultMetric fills in the parts of a metric that are always written, and brings its amounts into canonical form.
func defaultMetric(m *autoscalingv2.MetricSpec) {
	target := func(t **autoscalingv2.MetricTarget) {
		defaults.Message(t)
		canonical((*t).Value)
		canonical((*t).AverageValue)
	}
	if s := m.GetObject(); s != nil {
		defaults.Message(&s.DescribedObject)
		defaults.Message(&s.Metric)
		target(&s.Target)
	}
	if s := m.GetPods(); s != nil {
		defaults.Message(&s.Metric)
		target(&s.Target)
	}
	if s := m.GetResource(); s != nil {
		target(&s.Target)
	}
	if s := m.GetContainerResource(); s != nil {
		target(&s.Target)
	}
	if s := m.GetExternal(); s != nil {
		defaults.Message(&s.Metric)
		target(&s.Target)
	}
}

func checkMetrics(f *validation.Faults, at *validation.Path, s, was *autoscalingv2.HorizontalPodAutoscalerSpec) {
	described := referenceRules{emptyGroup: true}
	for _, m := range was.GetMetrics() {
		if m.GetType() == objectSource && m.GetObject() != nil &&
			described.wrongVersion(m.GetObject().GetDescribedObject().GetApiVersion()) != nil {
			described.anyVersion = true
		}
	}
	fromNothing := false
	for i, m := range s.GetMetrics() {
		checkMetric(f, at.Index(i), m, described)
		fromNothing = fromNothing || m.GetType() == objectSource || m.GetType() == externalSource
	}
	if s != nil && s.MinReplicas != nil && *s.MinReplicas == 0 && !fromNothing {
		f.Forbidden(at, "must specify at least one Object or External metric to support scaling to zero replicas")
	}
}

func checkMetric(f *validation.Faults, at *validation.Path, m *autoscalingv2.MetricSpec, described referenceRules) {
	if m.GetType() == "" {
		f.Required(at.Child("type"), "must specify a metric source type")
	}
	f.OneOf(at.Child("type"), m.GetType(), containerSource, externalSource, objectSource, podsSource, resourceSource)

	sources := []struct {
		kind, name string
		given      bool
		check      func(at *validation.Path)
	}{
		{objectSource, "object", m.GetObject() != nil, func(at *validation.Path) {
			checkReference(f, at.Child("describedObject"), m.GetObject().GetDescribedObject(), described)
			checkIdentifier(f, at.Child("metric"), m.GetObject().GetMetric())
			checkValueTarget(f, at.Child("target"), m.GetObject().GetTarget(),
				"must set either a target value or averageValue")
		}},
		{externalSource, "external", m.GetExternal() != nil, func(at *validation.Path) {
			t, target := m.GetExternal().GetTarget(), at.Child("target")
			checkIdentifier(f, at.Child("metric"), m.GetExternal().GetMetric())
			checkValueTarget(f, target, t, "must set either a target value for metric or a per-pod target")
			if t.GetValue() != nil && t.GetAverageValue() != nil {
				f.Forbidden(target.Child("value"), "may not set both a target value for metric and a per-pod target")
			}
		}},
		{podsSource, "pods", m.GetPods() != nil, func(at *validation.Path) {
			checkIdentifier(f, at.Child("metric"), m.GetPods().GetMetric())
			checkTarget(f, at.Child("target"), m.GetPods().GetTarget())
			if m.GetPods().GetTarget().GetAverageValue() == nil {
				f.Required(at.Child("target").Child("averageValue"), "must specify a positive target averageValue")
			}
		}},
		{resourceSource, "resource", m.GetResource() != nil, func(at *validation.Path) {
			if m.GetResource().GetName() == "" {
				f.Required(at.Child("name"), "must specify a resource name")
			}
			checkUsageTarget(f, at.Child("target"), m.GetResource().GetTarget())
		}},
		{containerSource, "containerResource", m.GetContainerResource() != nil, func(at *validation.Path) {
			s := m.GetContainerResource()
			if s.GetName() == "" {
				f.Required(at.Child("name"), "must specify a resource name")
			} else {
				f.ResourceName(at.Child("name"), s.GetName(), validation.OfContainer)
			}
			if s.GetContainer() == "" {
				f.Required(at.Child("container"), "must specify a container")
			} else {
				f.Label(at.Child("container"), s.GetContainer())
			}
			checkUsageTarget(f, at.Child("target"), s.GetTarget())
		}},
	}
	given := 0
	for _, s := range sources {
		if s.given {
			given++
			if given == 1 {
				s.check(at.Child(s.name)) // of several, only the first is looked at, in this order
			}
		} else if s.kind == m.GetType() {
			f.Required(at.Child(s.name), "must populate information for the given metric source")
		}
	}
	for _, s := range sources {
		if s.given && given > 1 && s.kind != m.GetType() {
			f.Forbidden(at.Child(s.name), "must populate the given metric source only")
		}
	}
}

// checkValueTarget checks what a number that is not one of pods should be.
func checkValueTarget(f *validation.Faults, at *validation.Path, t *autoscalingv2.MetricTarget, missing string) {
	checkTarget(f, at, t)
	if t.GetValue() == nil && t.GetAverageValue() == nil {
		f.Required(at.Child("averageValue"), missing)
	}
}

// checkUsageTarget checks what the use of a resource should be.
func checkUsageTarget(f *validation.Faults, at *validation.Path, t *autoscalingv2.MetricTarget) {
	checkTarget(f, at, t)
	percent := t != nil && t.AverageUtilization != nil
	switch {
	case !percent && t.GetAverageValue() == nil:
		f.Required(at.Child("averageUtilization"), "must set either a target raw value or a target utilization")
	case percent && t.GetAverageValue() != nil:
		f.Forbidden(at.Child("averageValue"), "may not set both a target raw value and a target utilization")
	}
}

func checkTarget(f *validation.Faults, at *validation.Path, t *autoscalingv2.MetricTarget) {
	switch t.GetType() {
	case utilization, wholeValue, average:
	case "":
		f.Required(at.Child("type"), "must specify a metric target type")
		fallthrough
	default:
		f.Invalid(at.Child("type"), t.GetType(), "must be either Utilization, Value, or AverageValue")
	}
	checkPositive(f, at.Child("value"), t.GetValue())
	checkPositive(f, at.Child("averageValue"), t.GetAverageValue())
	if t != nil && t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		f.InvalidValue(at.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0")
	}
}

func checkPositive(f *validation.Faults, at *validation.Path, text *metav1.Quantity) {
	if text == nil {
		return
	}
	q, err := value.Quantity(text)
	switch {
	case err != nil:
		f.Invalid(at, text.GetString_(), err.Error())
	case q.Sign() != 1:
		f.Invalid(at, q.String(), "must be positive")
	}
}

func checkIdentifier(f *validation.Faults, at *validation.Path, id *autoscalingv2.MetricIdentifier) {
	checkSegment(f, at.Child("name"), id.GetName(), "must specify a metric name")
}

// unknown stands for what has not been measured.
const unknown = "<unknown>"

// targets is what column TARGETS shows: each metric as it was measured, and as it should be.
func targets(specs []*autoscalingv2.MetricSpec, statuses []*autoscalingv2.MetricStatus) string {
	const shown = 2
	var list []string
	for i, m := range specs {
		var now *autoscalingv2.MetricStatus
		if i < len(statuses) {
			now = statuses[i]
		}
		list = append(list, target(m, now))
	}
	switch more := len(list) - shown; {
	case len(list) == 0:
		return define.OrNone("")
	case more > 0:
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ", "), more)
	default:
		return strings.Join(list, ", ")
	}
}

// target is one metric as it was measured, nil for not at all, and as it should be.
func target(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	switch m.GetType() {
	case objectSource:
		return valueTarget(m.GetObject().GetTarget(), now.GetObject().GetCurrent())
	case externalSource:
		return valueTarget(m.GetExternal().GetTarget(), now.GetExternal().GetCurrent())
	case podsSource:
		return averageTarget(m.GetPods().GetTarget(), now.GetPods().GetCurrent())
	case resourceSource:
		return m.GetResource().GetName() + ": " + usageTarget(m.GetResource().GetTarget(), now.GetResource().GetCurrent())
	case containerSource:
		s := m.GetContainerResource()
		return s.GetName() + ": " + usageTarget(s.GetTarget(), now.GetContainerResource().GetCurrent())
	default:
		return "<unknown type>"
	}
}

func valueTarget(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.GetAverageValue() != nil {
		return averageTarget(t, now) + " (avg)"
	}
	return measured(now.GetValue()) + "/" + t.GetValue().GetString_()
}

func averageTarget(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	return measured(now.GetAverageValue()) + "/" + t.GetAverageValue().GetString_()
}

func usageTarget(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.GetAverageValue() != nil {
		return averageTarget(t, now)
	}
	current, wanted := unknown, "<auto>"
	if now != nil && now.AverageUtilization != nil {
		current = fmt.Sprintf("%d%%", *now.AverageUtilization)
	}
	if t != nil && t.AverageUtilization != nil {
		wanted = fmt.Sprintf("%d%%", *t.AverageUtilization)
	}
	return current + "/" + wanted
}

func measured(q *metav1.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.GetString_()
}
