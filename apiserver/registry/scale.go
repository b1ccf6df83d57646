package registry

import (
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
)

// Scale says how objects of type T are read and changed as a Scale: whoever scales needs to know of a kind only that
// it has a number of replicas.
type Scale[T object.Object] struct {
	// Replicas returns how many are wanted; SetReplicas writes it to an object that it may change, which has a spec.
	Replicas    func(o T) int32
	SetReplicas func(o T, n int32)
	// Current returns how many there are, by the status.
	Current func(o T) int32
	// Selector returns the selector of the pods, as in a query.
	Selector func(o T) string
}

func (s *Scale[T]) rules() *UpdateRules {
	return &UpdateRules{
		Shape: &Shape{Kind: autoscalingv1.ScaleKind, Of: func(o object.Object) object.Object { return s.of(o.(T)) }},
		Apply: func(asked, live object.Object) object.Object {
			next := object.Clone(live.(T))
			if scale, ok := asked.(*autoscalingv1.Scale); ok {
				s.SetReplicas(next, scale.GetSpec().GetReplicas())
			}
			return next
		},
		Validate: func(next, _ object.Object) []apierrors.Cause {
			f := &validation.Faults{}
			for f.Pass() {
				f.NotNegative(f.Root("spec").Child("replicas"), int64(s.Replicas(next.(T))))
			}
			return f.Causes()
		},
	}
}

// of returns the scale of an object. Its metadata is what Kubernetes' scales have.
func (s *Scale[T]) of(o T) *autoscalingv1.Scale {
	m := o.GetMetadata().Shallow()
	m.GenerateName, m.DeletionTimestamp, m.DeletionGracePeriodSeconds, m.Generation = "", nil, nil, 0
	m.Labels, m.Annotations, m.OwnerReferences, m.Finalizers, m.ManagedFields = nil, nil, nil, nil, nil
	return &autoscalingv1.Scale{
		Metadata: m,
		Spec:     &autoscalingv1.ScaleSpec{Replicas: s.Replicas(o)},
		Status:   &autoscalingv1.ScaleStatus{Replicas: s.Current(o), Selector: s.Selector(o)},
	}
}
