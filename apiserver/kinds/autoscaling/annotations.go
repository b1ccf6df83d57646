package autoscaling

import (
	"bytes"
	"encoding/json"
	"strconv"

	codecjson "monoplane.dev/codec/json"
	"monoplane.dev/codec/value"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
)

// metric is one metric in an annotation of autoscaling/v1: in the spec what should be, in the status what was
// measured.
type metric[S numbers] struct {
	Type              string `json:"type"`
	Object            *S     `json:"object"`
	Pods              *S     `json:"pods"`
	Resource          *S     `json:"resource"`
	ContainerResource *S     `json:"containerResource"`
	External          *S     `json:"external"`
}

// source has the names of every kind of metric; each has some of them.
type source struct {
	Target         reference `json:"target"`
	MetricName     string    `json:"metricName"`
	Name           string    `json:"name"`
	Container      string    `json:"container"`
	Selector       selector  `json:"selector"`
	MetricSelector selector  `json:"metricSelector"`
}

// goal is what a metric should be, and reading what it was; each kind of metric has some of the numbers.
type (
	goal struct {
		source
		Value              amount `json:"targetValue"`
		Average            amount `json:"targetAverageValue"`
		AverageOfObject    amount `json:"averageValue"`
		AverageUtilization *int32 `json:"targetAverageUtilization"`
	}
	reading struct {
		source
		Value              amount `json:"currentValue"`
		Average            amount `json:"currentAverageValue"`
		AverageOfObject    amount `json:"averageValue"`
		AverageUtilization *int32 `json:"currentAverageUtilization"`
	}
	numbers interface {
		goal | reading
		as(kind string) members
	}
)

func (g goal) as(kind string) members {
	return g.source.as(kind, "target", g.Value, g.Average, g.AverageOfObject, g.AverageUtilization)
}

func (r reading) as(kind string) members {
	return r.source.as(kind, "current", r.Value, r.Average, r.AverageOfObject, r.AverageUtilization)
}

// as returns what a metric of a kind has, as Kubernetes orders it.
func (s source) as(kind, prefix string, value, mean, meanOfObject amount, percent *int32) members {
	use := members{
		{"name", s.Name}, {prefix + "AverageUtilization", percent}, {prefix + "AverageValue", mean},
	}
	switch kind {
	case objectSource:
		return members{
			{"target", reference{s.Target.orEmpty()}}, {"metricName", s.MetricName}, {prefix + "Value", value},
			{"selector", s.Selector}, {"averageValue", meanOfObject},
		}
	case podsSource:
		return members{{"metricName", s.MetricName}, {prefix + "AverageValue", mean}, {"selector", s.Selector}}
	case externalSource:
		return members{
			{"metricName", s.MetricName}, {"metricSelector", s.MetricSelector}, {prefix + "Value", value},
			{prefix + "AverageValue", mean},
		}
	case containerSource:
		return append(use, member{"container", s.Container})
	default:
		return use
	}
}

// MarshalJSON writes a metric to the byte as Kubernetes does: whoever applies an autoscaler as autoscaling/v1 that has
// been read there applies these texts, and one that is another would be a change.
func (m metric[S]) MarshalJSON() ([]byte, error) {
	out := members{{"type", m.Type}}
	for _, x := range []struct {
		kind, name string
		numbers    *S
	}{
		{objectSource, "object", m.Object}, {podsSource, "pods", m.Pods}, {resourceSource, "resource", m.Resource},
		{containerSource, "containerResource", m.ContainerResource}, {externalSource, "external", m.External},
	} {
		if x.numbers != nil {
			out = append(out, member{x.name, (*x.numbers).as(x.kind)})
		}
	}
	return out.MarshalJSON()
}

// members is a JSON object whose members have an order. Those without a value are left out.
type members []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the object.
func (list members) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for _, m := range list {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if string(value) == "null" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, m.name)
		out = append(append(out, ':'), value...)
	}
	return append(out, '}'), nil
}

// part is a message of ours within such JSON; its zero value is none.
type part[M any, P interface {
	*M
	codecjson.Value
}] struct{ message P }

type (
	amount    = part[metav1.Quantity, *metav1.Quantity]
	selector  = part[metav1.LabelSelector, *metav1.LabelSelector]
	reference = part[autoscalingv2.CrossVersionObjectReference, *autoscalingv2.CrossVersionObjectReference]
	condition = part[autoscalingv2.HorizontalPodAutoscalerCondition, *autoscalingv2.HorizontalPodAutoscalerCondition]
)

// MarshalJSON returns the Kubernetes JSON form, and null for none.
func (p part[M, P]) MarshalJSON() ([]byte, error) {
	if p.message == nil {
		return []byte("null"), nil
	}
	return p.message.AppendJSON(nil), nil
}

// UnmarshalJSON reads the Kubernetes JSON form.
func (p *part[M, P]) UnmarshalJSON(b []byte) error {
	if p.message = nil; bytes.Equal(b, []byte("null")) {
		return nil
	}
	message, d := P(new(M)), codecjson.NewDecoder(b)
	message.DecodeJSON(d)
	p.message = message
	return d.Err()
}

// orEmpty returns the message, and an empty one for none.
func (p part[M, P]) orEmpty() P {
	if p.message == nil {
		return new(M)
	}
	return p.message
}

// orZero returns an amount that autoscaling/v1 always has: 0 where there is none.
func orZero(q *metav1.Quantity) amount {
	if q == nil {
		q = &metav1.Quantity{String_: "0"}
	}
	return amount{q}
}

// metricOf returns the JSON of what should be.
func metricOf(m *autoscalingv2.MetricSpec) metric[goal] {
	out := metric[goal]{Type: m.GetType()}
	if s := m.GetObject(); s != nil {
		out.Object = &goal{
			source: named(s.GetMetric()), Value: orZero(s.GetTarget().GetValue()),
			AverageOfObject: amount{s.GetTarget().GetAverageValue()},
		}
		out.Object.Target = reference{s.GetDescribedObject()}
	}
	if s := m.GetPods(); s != nil {
		out.Pods = &goal{source: named(s.GetMetric()), Average: orZero(s.GetTarget().GetAverageValue())}
	}
	if s := m.GetResource(); s != nil {
		out.Resource = usageOf(source{Name: s.GetName()}, s.GetTarget())
	}
	if s := m.GetContainerResource(); s != nil {
		out.ContainerResource = usageOf(source{Name: s.GetName(), Container: s.GetContainer()}, s.GetTarget())
	}
	if s := m.GetExternal(); s != nil {
		out.External = &goal{
			source: named(s.GetMetric()).external(), Value: amount{s.GetTarget().GetValue()},
			Average: amount{s.GetTarget().GetAverageValue()},
		}
	}
	return out
}

func named(id *autoscalingv2.MetricIdentifier) source {
	return source{MetricName: id.GetName(), Selector: selector{id.GetSelector()}}
}

// external has the selector where that of a metric outside the cluster is.
func (s source) external() source {
	s.Selector, s.MetricSelector = selector{}, s.Selector
	return s
}

func usageOf(of source, t *autoscalingv2.MetricTarget) *goal {
	out := &goal{source: of, Average: amount{t.GetAverageValue()}}
	if t != nil {
		out.AverageUtilization = t.AverageUtilization
	}
	return out
}

// specOf returns what should be. Which kind of target is meant follows from the numbers that are given.
func specOf(m metric[goal]) *autoscalingv2.MetricSpec {
	out := &autoscalingv2.MetricSpec{Type: m.Type}
	if s := m.Object; s != nil {
		target := &autoscalingv2.MetricTarget{Type: wholeValue, Value: orZero(s.Value.message).message}
		if mean := s.AverageOfObject.message; mean != nil {
			target.Type, target.AverageValue = average, mean
			if isZero(target.Value) {
				target.Value = nil // it is always written, and stands for none here
			}
		}
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: s.Target.orEmpty(), Target: target, Metric: s.identifier(),
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: s.identifier(),
			Target: &autoscalingv2.MetricTarget{Type: average, AverageValue: orZero(s.Average.message).message},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: s.Name, Target: s.usage()}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, Target: s.usage(),
		}
	}
	if s := m.External; s != nil {
		target := &autoscalingv2.MetricTarget{
			Type: wholeValue, Value: s.Value.message, AverageValue: s.Average.message,
		}
		if target.Value == nil {
			target.Type = average
		}
		out.External = &autoscalingv2.ExternalMetricSource{Metric: s.outside(), Target: target}
	}
	return out
}

func (g *goal) usage() *autoscalingv2.MetricTarget {
	t := &autoscalingv2.MetricTarget{
		Type: utilization, AverageValue: g.Average.message, AverageUtilization: g.AverageUtilization,
	}
	if t.AverageUtilization == nil {
		t.Type = average
	}
	return t
}

// identifier names a number of the cluster, and outside one from elsewhere.
func (s source) identifier() *autoscalingv2.MetricIdentifier {
	return &autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector.message}
}

func (s source) outside() *autoscalingv2.MetricIdentifier {
	return &autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector.message}
}

func isZero(q *metav1.Quantity) bool {
	v, err := value.Quantity(q)
	return err == nil && v.IsZero()
}

// currentOf returns the JSON of what was measured.
func currentOf(m *autoscalingv2.MetricStatus) metric[reading] {
	out := metric[reading]{Type: m.GetType()}
	if s := m.GetObject(); s != nil {
		out.Object = &reading{
			source: named(s.GetMetric()), Value: orZero(s.GetCurrent().GetValue()),
			AverageOfObject: amount{s.GetCurrent().GetAverageValue()},
		}
		out.Object.Target = reference{s.GetDescribedObject()}
	}
	if s := m.GetPods(); s != nil {
		out.Pods = &reading{source: named(s.GetMetric()), Average: orZero(s.GetCurrent().GetAverageValue())}
	}
	if s := m.GetResource(); s != nil {
		out.Resource = usedOf(source{Name: s.GetName()}, s.GetCurrent())
	}
	if s := m.GetContainerResource(); s != nil {
		out.ContainerResource = usedOf(source{Name: s.GetName(), Container: s.GetContainer()}, s.GetCurrent())
	}
	if s := m.GetExternal(); s != nil {
		out.External = &reading{
			source: named(s.GetMetric()).external(), Value: orZero(s.GetCurrent().GetValue()),
			Average: amount{s.GetCurrent().GetAverageValue()},
		}
	}
	return out
}

func usedOf(of source, now *autoscalingv2.MetricValueStatus) *reading {
	out := &reading{source: of, Average: orZero(now.GetAverageValue())}
	if now != nil {
		out.AverageUtilization = now.AverageUtilization
	}
	return out
}

// statusOf returns what was measured.
func statusOf(m metric[reading]) *autoscalingv2.MetricStatus {
	out := &autoscalingv2.MetricStatus{Type: m.Type}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: s.Target.orEmpty(), Metric: s.identifier(), Current: &autoscalingv2.MetricValueStatus{
				Value: orZero(s.Value.message).message, AverageValue: s.AverageOfObject.message,
			},
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  s.identifier(),
			Current: &autoscalingv2.MetricValueStatus{AverageValue: orZero(s.Average.message).message},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: s.used()}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container, Current: s.used(),
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric: s.outside(), Current: &autoscalingv2.MetricValueStatus{
				Value: orZero(s.Value.message).message, AverageValue: s.Average.message,
			},
		}
	}
	return out
}

func (r *reading) used() *autoscalingv2.MetricValueStatus {
	return &autoscalingv2.MetricValueStatus{
		AverageValue: orZero(r.Average.message).message, AverageUtilization: r.AverageUtilization,
	}
}

// behavior is the JSON of how fast the number changes. Kubernetes writes its names in upper case here, and reads them
// in any.
type behavior struct{ ScaleUp, ScaleDown *scalingRules }

type scalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *string
	Policies                   []scalingPolicy
	Tolerance                  amount
}

type scalingPolicy struct {
	Type                 string
	Value, PeriodSeconds int32
}

func behaviorOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior) behavior {
	convert := func(r *autoscalingv2.HPAScalingRules) *scalingRules {
		if r == nil {
			return nil
		}
		out := &scalingRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
			Tolerance: amount{r.Tolerance},
		}
		for _, p := range r.GetPolicies() {
			out.Policies = append(out.Policies, scalingPolicy{p.GetType(), p.GetValue(), p.GetPeriodSeconds()})
		}
		return out
	}
	return behavior{convert(b.GetScaleUp()), convert(b.GetScaleDown())}
}

func (b behavior) rules() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	convert := func(r *scalingRules) *autoscalingv2.HPAScalingRules {
		if r == nil {
			return nil
		}
		out := &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
			Tolerance: r.Tolerance.message,
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, &autoscalingv2.HPAScalingPolicy{
				Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds,
			})
		}
		return out
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: convert(b.ScaleUp), ScaleDown: convert(b.ScaleDown)}
}
