package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/podautoscaler/pace"
	"monoplane.dev/object"
)

// The conditions of an autoscaler.
const (
	ableToScale    = "AbleToScale"
	scalingActive  = "ScalingActive"
	scalingLimited = "ScalingLimited"
)

// look is one look at an autoscaler: what it finds becomes the status.
type look struct {
	*Controller
	o      *autoscalingv2.HorizontalPodAutoscaler
	memory *memory
	now    time.Time
	// status is what is to be written.
	status *autoscalingv2.HorizontalPodAutoscalerStatus
}

func newLook(c *Controller, o *autoscalingv2.HorizontalPodAutoscaler, m *memory) *look {
	l := &look{Controller: c, o: o, memory: m, now: time.Now(), status: object.Clone(o.GetStatus())}
	if l.status == nil {
		l.status = &autoscalingv2.HorizontalPodAutoscalerStatus{}
	}
	return l
}

// run scales the target when it is to be scaled. What goes wrong is in the status, and told by events; the error is
// for what is to be tried again at once.
func (l *look) run(ctx context.Context) error {
	ref := l.o.GetSpec().GetScaleTargetRef()
	t, err := l.scales.target(l.o.GetMetadata().GetNamespace(), ref)
	var scale *autoscalingv1.Scale
	if err == nil {
		scale, err = t.read(ctx)
	}
	if err != nil {
		l.warn("FailedGetScale", "ReadingScale", err.Error())
		l.condition(ableToScale, false, "FailedGetScale",
			"the HPA controller was unable to get the target's current scale: "+err.Error())
		return nil
	}
	l.condition(ableToScale, true, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	current := scale.GetSpec().GetReplicas()
	if l.memory.history.Empty() {
		l.memory.history.Asked(current, l.now)
	}
	wanted, why, metrics, ok := l.decide(ctx, scale)
	l.status.CurrentReplicas, l.status.CurrentMetrics = current, metrics
	if !ok {
		return nil
	}
	l.status.DesiredReplicas = wanted
	if wanted == current {
		return nil
	}
	if err := t.write(ctx, scale, wanted); err != nil {
		l.status.DesiredReplicas = l.o.GetStatus().GetDesiredReplicas()
		l.warn("FailedRescale", "Rescaling", fmt.Sprintf("New size: %d; reason: %s; error: %v", wanted, why, err))
		l.condition(ableToScale, false, "FailedUpdateScale",
			"the HPA controller was unable to update the target scale: "+err.Error())
		if apierrors.Is(err, apierrors.Conflict) {
			return err
		}
		return nil
	}
	l.condition(ableToScale, true, "SucceededRescale",
		fmt.Sprint("the HPA controller was able to update the target scale to ", wanted))
	l.events.Event(l.o, record.Normal, "SuccessfulRescale", "Rescaling",
		fmt.Sprintf("New size: %d; reason: %s", wanted, why))
	l.memory.history.Changed(l.o.GetSpec().GetBehavior(), current, wanted, l.now)
	l.status.LastScaleTime = value.Time(l.now)
	return nil
}

// decide returns how many replicas there are to be, and why when that is another number; ok is false when nothing can
// be said.
func (l *look) decide(ctx context.Context, scale *autoscalingv1.Scale) (
	wanted int32, why string, metrics []*autoscalingv2.MetricStatus, ok bool,
) {
	spec, current := l.o.GetSpec(), scale.GetSpec().GetReplicas()
	least := int32(1)
	if spec.GetMinReplicas() != 0 {
		least = spec.GetMinReplicas()
	}
	switch {
	case current == 0:
		l.condition(scalingActive, false, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
		return 0, "", nil, true
	case current > spec.GetMaxReplicas():
		return spec.GetMaxReplicas(), "Current number of replicas above Spec.MaxReplicas", nil, true
	case current < least:
		return least, "Current number of replicas below Spec.MinReplicas", nil, true
	}
	proposed, metric, metrics, err := l.measure(ctx, scale)
	if err != nil {
		l.warn("FailedComputeMetricsReplicas", "Measuring", err.Error())
		return 0, "", metrics, false
	}
	switch {
	case proposed > current:
		why = metric + " above target"
	case proposed < current:
		why = "All metrics below target"
	}
	a := l.memory.history.Decide(pace.Question{
		Min: least, Max: spec.GetMaxReplicas(), Current: current, Proposed: proposed, Behavior: spec.GetBehavior(),
		Now: l.now,
	})
	l.condition(ableToScale, true, a.AbleReason, a.AbleMessage)
	l.condition(scalingLimited, a.Limited, a.LimitReason, a.LimitMessage)
	return a.Replicas, why, metrics, true
}

// selected returns the selector of the pods that are scaled, and the pods. They are an autoscaler's own.
func (l *look) selected(scale *autoscalingv1.Scale) (labels.Selector, []*corev1.Pod, error) {
	refuse := func(event, reason, message string) error {
		l.warn(event, "Selecting", message)
		l.condition(scalingActive, false, reason, message)
		return errors.New(message)
	}
	text := scale.GetStatus().GetSelector()
	if text == "" {
		return nil, nil, refuse("SelectorRequired", "InvalidSelector", "the HPA target's scale is missing a selector")
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, nil, refuse("InvalidSelector", "InvalidSelector",
			"the selector of the target cannot be read: "+err.Error())
	}
	key := cache.KeyOf(l.o)
	var pods []*corev1.Pod
	for _, p := range l.pods.ByIndex(controller.ByNamespace, key.Namespace) {
		if selector.Matches(labels.Set(p.GetMetadata().GetLabels())) {
			pods = append(pods, p)
		}
	}
	if others := l.share(key, l.memory, selector, pods); len(others) > 0 {
		return nil, nil, refuse("AmbiguousSelector", "AmbiguousSelector", fmt.Sprintf(
			"pods by selector %s are controlled by multiple HPAs: %s", text, strings.Join(others, ", ")))
	}
	return selector, pods, nil
}

// share notes the selector of an autoscaler, and returns all that share some of its pods, itself included; nothing
// when it is alone.
func (c *Controller) share(key cache.Key, m *memory, selector labels.Selector, pods []*corev1.Pod) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.selector = selector
	var all []string
	for k, other := range c.memory {
		if k == key || k.Namespace != key.Namespace || other.selector == nil {
			continue
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			return other.selector.Matches(labels.Set(p.GetMetadata().GetLabels()))
		}) {
			all = append(all, k.String())
		}
	}
	if len(all) == 0 {
		return nil
	}
	all = append(all, key.String())
	slices.Sort(all)
	return all
}

func (l *look) warn(reason, action, message string) {
	l.events.Event(l.o, record.Warning, reason, action, message)
}

// condition sets a condition of the status.
func (l *look) condition(kind string, is bool, reason, message string) {
	status := "False"
	if is {
		status = "True"
	}
	i := slices.IndexFunc(l.status.Conditions, func(c *autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.GetType() == kind
	})
	if i < 0 {
		i = len(l.status.Conditions)
		l.status.Conditions = append(l.status.Conditions, &autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
	}
	c := l.status.Conditions[i]
	if c.Status != status {
		c.LastTransitionTime = value.Time(l.now)
	}
	c.Status, c.Reason, c.Message = status, reason, message
}
