package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/podautoscaler/measure"
	"monoplane.dev/rules/resources"
)

// The kinds of metrics.
const (
	ofResource  = "Resource"
	ofContainer = "ContainerResource"
	ofPods      = "Pods"
	ofObject    = "Object"
	fromOutside = "External"
)

// measure returns how many replicas the metrics ask for: the most that any of them does, which it names. When some
// cannot be read, the others still scale up.
func (l *look) measure(ctx context.Context, scale *autoscalingv1.Scale) (
	replicas int32, metric string, statuses []*autoscalingv2.MetricStatus, err error,
) {
	selector, pods, err := l.selected(scale)
	if err != nil {
		return 0, "", nil, err
	}
	specs := l.o.GetSpec().GetMetrics()
	var reason string
	var first error
	failed := 0
	for _, m := range specs {
		r := reading{look: l, ctx: ctx, selector: selector, pods: pods, wanted: scale.GetSpec().GetReplicas()}
		n, name, status, why, err := r.read(m)
		statuses = append(statuses, status)
		if err != nil {
			l.warn(why, "Measuring", err.Error())
			if failed == 0 {
				reason, first = why, err
			}
			failed++
			continue
		}
		if replicas == 0 || n > replicas {
			replicas, metric = n, name
		}
	}
	if failed == len(specs) || failed > 0 && replicas < scale.GetSpec().GetReplicas() {
		l.condition(scalingActive, false, reason, "the HPA was unable to compute the replica count: "+first.Error())
		return 0, "", statuses, fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w",
			failed, len(specs), first)
	}
	l.condition(scalingActive, true, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from "+metric)
	return replicas, metric, statuses, nil
}

// reading is what metrics are read with.
type reading struct {
	*look
	ctx      context.Context //nolint:containedctx // it lives as long as the call that made it
	selector labels.Selector
	pods     []*corev1.Pod
	wanted   int32
}

// read returns how many replicas a metric asks for, what it is called, and how it was measured; or why it cannot be
// read.
func (r reading) read(m *autoscalingv2.MetricSpec) (
	n int32, name string, status *autoscalingv2.MetricStatus, reason string, err error,
) {
	status = &autoscalingv2.MetricStatus{}
	switch m.GetType() {
	case ofResource:
		s := m.GetResource()
		n, now, err := r.use(s.GetName(), "", s.GetTarget())
		if err != nil {
			return 0, "", status, "FailedGetResourceMetric", err
		}
		name = s.GetName() + " resource"
		if s.GetTarget().GetAverageValue() == nil {
			name += " utilization (percentage of request)"
		}
		return n, name, &autoscalingv2.MetricStatus{
			Type: ofResource, Resource: &autoscalingv2.ResourceMetricStatus{Name: s.GetName(), Current: now},
		}, "", nil
	case ofContainer:
		s := m.GetContainerResource()
		n, now, err := r.use(s.GetName(), s.GetContainer(), s.GetTarget())
		if err != nil {
			return 0, "", status, "FailedGetContainerResourceMetric", err
		}
		name = s.GetName() + " resource"
		if s.GetTarget().GetAverageValue() == nil {
			name = s.GetName() + " container resource utilization (percentage of request)"
		}
		return n, name, &autoscalingv2.MetricStatus{
			Type: ofContainer, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{
				Name: s.GetName(), Container: s.GetContainer(), Current: now,
			},
		}, "", nil
	case ofPods:
		return 0, "", status, "FailedGetPodsMetric", noSource(m.GetPods().GetMetric(), "custom")
	case ofObject:
		return 0, "", status, "FailedGetObjectMetric", noSource(m.GetObject().GetMetric(), "custom")
	case fromOutside:
		return 0, "", status, "FailedGetExternalMetric", noSource(m.GetExternal().GetMetric(), "external")
	default:
		return 0, "", status, "InvalidMetricSourceType", fmt.Errorf("unknown metric source type %q", m.GetType())
	}
}

// noSource says why a metric cannot be read that nothing here measures.
func noSource(m *autoscalingv2.MetricIdentifier, kind string) error {
	return fmt.Errorf("unable to get metric %s: nothing serves %s metrics", m.GetName(), kind)
}

// use returns how many replicas the use of a resource asks for, and what it is.
func (r reading) use(name, container string, t *autoscalingv2.MetricTarget) (
	n int32, now *autoscalingv2.MetricValueStatus, err error,
) {
	list, err := r.api.PodMetrics.List(r.ctx, &metav1.ListRequest{
		Namespace: r.o.GetMetadata().GetNamespace(), LabelSelector: r.selector.String(),
	})
	switch {
	case err != nil:
		err = apierrors.From(err)
	case len(list.GetItems()) == 0:
		err = errors.New("no metrics returned from resource metrics API")
	}
	if err != nil {
		return 0, nil, fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	pods := measure.Pods{
		All: r.pods, Samples: measure.Samples(list.GetItems(), name, container), Resource: name, Container: container,
		Wanted: r.wanted, Tolerance: toleranceOf(r.o.GetSpec().GetBehavior()), Now: r.now,
	}
	if t.GetAverageValue() != nil {
		q, err := value.Quantity(t.GetAverageValue())
		if err != nil {
			return 0, nil, fmt.Errorf("read what %s should be: %w", name, err)
		}
		p, err := pods.Average(q.MilliValue())
		if err != nil {
			return 0, nil, fmt.Errorf("failed to get %s usage: %w", name, err)
		}
		return p.Replicas, &autoscalingv2.MetricValueStatus{AverageValue: amount(name, p.Average)}, nil
	}
	p, err := pods.Utilization(t.GetAverageUtilization())
	if err != nil {
		return 0, nil, fmt.Errorf("failed to get %s utilization: %w", name, err)
	}
	return p.Replicas, &autoscalingv2.MetricValueStatus{
		AverageUtilization: &p.Utilization, AverageValue: amount(name, p.Average),
	}, nil
}

// amount writes thousandths as the resource is written.
func amount(name string, thousandths int64) *metav1.Quantity {
	format := resource.DecimalSI
	if name == resources.Memory {
		format = resource.BinarySI
	}
	return value.NewQuantity(*resource.NewMilliQuantity(thousandths, format))
}

// toleranceOf returns how far from what it should be a metric may be.
func toleranceOf(b *autoscalingv2.HorizontalPodAutoscalerBehavior) measure.Tolerance {
	of := func(r *autoscalingv2.HPAScalingRules) float64 {
		if r.GetTolerance() == nil {
			return measure.DefaultTolerance
		}
		q, err := value.Quantity(r.GetTolerance())
		if err != nil {
			return measure.DefaultTolerance // validation lets none through
		}
		return q.AsApproximateFloat64()
	}
	return measure.Tolerance{Down: of(b.GetScaleDown()), Up: of(b.GetScaleUp())}
}
