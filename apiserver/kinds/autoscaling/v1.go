package autoscaling

import (
	"encoding/json"
	"maps"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	metav1 "monoplane.dev/api/meta/v1"
)

// HorizontalPodAutoscalerV1 serves the autoscalers that are stored in the shape of autoscaling/v2 as autoscaling/v1.
// Of what is measured that shape has one percentage of cpu; all else it has in annotations, from which it comes back
// when such an object is written.
func HorizontalPodAutoscalerV1(c define.Config) define.Definition {
	return define.Definition{Strategy: HorizontalPodAutoscaler(c).Strategy, View: &registry.View{
		Kind: autoscalingv1.HorizontalPodAutoscalerKind,
		In:   func(o object.Object) object.Object { return FromV1(o.(*autoscalingv1.HorizontalPodAutoscaler)) },
		Out:  func(o object.Object) object.Object { return ToV1(o.(*autoscalingv2.HorizontalPodAutoscaler)) },
	}}
}

// The annotations of autoscaling/v1. No object is stored with them.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
	// The tolerances are of versions that Kubernetes had before, and have no meaning any more.
	toleranceUpAnnotation   = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	toleranceDownAnnotation = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
)

// ToV1 returns an autoscaler in the shape of autoscaling/v1. It does not change o, and shares its parts.
func ToV1(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	spec, status := o.GetSpec(), o.GetStatus()
	ref := spec.GetScaleTargetRef()
	out := &autoscalingv1.HorizontalPodAutoscaler{
		Spec: &autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: &autoscalingv1.CrossVersionObjectReference{
				Kind: ref.GetKind(), Name: ref.GetName(), ApiVersion: ref.GetApiVersion(),
			},
			MaxReplicas: spec.GetMaxReplicas(),
		},
		Status: &autoscalingv1.HorizontalPodAutoscalerStatus{
			LastScaleTime:   status.GetLastScaleTime(),
			CurrentReplicas: status.GetCurrentReplicas(), DesiredReplicas: status.GetDesiredReplicas(),
		},
	}
	if spec != nil {
		out.Spec.MinReplicas = spec.MinReplicas
	}
	if status != nil {
		out.Status.ObservedGeneration = status.ObservedGeneration
	}
	notes := make(map[string]string)
	var others []metric[goal]
	for _, m := range spec.GetMetrics() {
		if percent := cpuPercent(m); percent == nil {
			others = append(others, metricOf(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = percent
		}
	}
	note(notes, metricsAnnotation, others)
	var current []metric[reading]
	for _, m := range status.GetCurrentMetrics() {
		current = append(current, currentOf(m))
		if m.GetType() == resourceSource && m.GetResource().GetName() == resources.CPU {
			if now := m.GetResource().GetCurrent(); now != nil && now.AverageUtilization != nil {
				out.Status.CurrentCPUUtilizationPercentage = now.AverageUtilization
			}
		}
	}
	note(notes, currentAnnotation, current)
	var conditions []condition
	for _, c := range status.GetConditions() {
		conditions = append(conditions, condition{c})
	}
	note(notes, conditionsAnnotation, conditions)
	if b := spec.GetBehavior(); b != nil {
		notes[behaviorAnnotation] = encode(behaviorOf(b))
	}
	out.Metadata = annotated(o.GetMetadata(), notes)
	return out
}

// cpuPercent returns the percentage that autoscaling/v1 has a field for; nil for any other metric.
func cpuPercent(m *autoscalingv2.MetricSpec) *int32 {
	if m.GetType() != resourceSource || m.GetResource().GetName() != resources.CPU || m.Resource.GetTarget() == nil {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// FromV1 returns an autoscaler of autoscaling/v1 as it is stored. It does not change o, and shares its parts. An
// annotation that cannot be read says nothing.
func FromV1(o *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	spec, status, notes := o.GetSpec(), o.GetStatus(), o.GetMetadata().GetAnnotations()
	ref := spec.GetScaleTargetRef()
	out := &autoscalingv2.HorizontalPodAutoscaler{
		Metadata: annotated(o.GetMetadata(), nil),
		Spec: &autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: &autoscalingv2.CrossVersionObjectReference{
				Kind: ref.GetKind(), Name: ref.GetName(), ApiVersion: ref.GetApiVersion(),
			},
			MaxReplicas: spec.GetMaxReplicas(),
		},
		Status: &autoscalingv2.HorizontalPodAutoscalerStatus{
			LastScaleTime:   status.GetLastScaleTime(),
			CurrentReplicas: status.GetCurrentReplicas(), DesiredReplicas: status.GetDesiredReplicas(),
		},
	}
	var metrics []metric[goal]
	if read(notes, metricsAnnotation, &metrics) {
		for _, m := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, specOf(m))
		}
	}
	if spec != nil {
		out.Spec.MinReplicas = spec.MinReplicas
		if percent := spec.TargetCPUUtilizationPercentage; percent != nil {
			out.Spec.Metrics = append(out.Spec.Metrics, &autoscalingv2.MetricSpec{
				Type: resourceSource,
				Resource: &autoscalingv2.ResourceMetricSource{Name: resources.CPU, Target: &autoscalingv2.MetricTarget{
					Type: utilization, AverageUtilization: percent,
				}},
			})
		}
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = defaultMetrics() // In the shape of autoscaling/v1 that is what none says.
	}
	var b behavior
	if read(notes, behaviorAnnotation, &b) && b != (behavior{}) {
		out.Spec.Behavior = b.rules()
	}

	var current []metric[reading]
	if read(notes, currentAnnotation, &current) {
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusOf(m))
		}
	} else if status != nil && status.CurrentCPUUtilizationPercentage != nil {
		out.Status.CurrentMetrics = []*autoscalingv2.MetricStatus{{
			Type: resourceSource,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: resources.CPU, Current: &autoscalingv2.MetricValueStatus{
				AverageUtilization: status.CurrentCPUUtilizationPercentage,
			}},
		}}
	}
	if status != nil {
		out.Status.ObservedGeneration = status.ObservedGeneration
	}
	var conditions []condition
	if read(notes, conditionsAnnotation, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, c.orEmpty())
		}
	}
	return out
}

// annotated returns metadata with notes in place of the annotations that m has of autoscaling/v1.
func annotated(m *metav1.ObjectMeta, notes map[string]string) *metav1.ObjectMeta {
	own := []string{
		metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation,
		toleranceUpAnnotation, toleranceDownAnnotation,
	}
	changes := len(notes) > 0
	for _, name := range own {
		_, has := m.GetAnnotations()[name]
		changes = changes || has
	}
	if !changes {
		return m
	}
	if m = m.Shallow(); m == nil {
		m = new(metav1.ObjectMeta)
	}
	all := make(map[string]string, len(m.Annotations)+len(notes))
	maps.Copy(all, m.Annotations)
	for _, name := range own {
		delete(all, name)
	}
	maps.Copy(all, notes)
	m.Annotations = all
	return m
}

// note keeps a list as the JSON of an annotation; an empty one needs none.
func note[T any](notes map[string]string, name string, list []T) {
	if len(list) > 0 {
		notes[name] = encode(list)
	}
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("autoscaling: " + err.Error()) // the types below are all of JSON
	}
	return string(b)
}

// read reads an annotation; it is false for one that is not there, or cannot be read.
func read(notes map[string]string, name string, into any) bool {
	text, ok := notes[name]
	return ok && json.Unmarshal([]byte(text), into) == nil
}
