package apps

import (
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ReplicaSet describes the kind.
func ReplicaSet(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*appsv1.ReplicaSet]{
		Kind:     appsv1.ReplicaSetKind,
		Spec:     func(o *appsv1.ReplicaSet) proto.Message { return o.GetSpec() },
		Default:  DefaultReplicaSet,
		Validate: ValidateReplicaSet,
		Warn: func(next, live *appsv1.ReplicaSet) validation.Warnings {
			changed := !validation.Equal(next.GetSpec(), live.GetSpec())
			return workload.Warnings(next, true, live == nil, changed, next.GetSpec().GetTemplate())
		},
		Main: registry.TypedUpdateRules[*appsv1.ReplicaSet]{Validate: ValidateReplicaSetUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*appsv1.ReplicaSet]{
			"status": {Validate: ValidateReplicaSetStatus},
		},
		Scale: &registry.Scale[*appsv1.ReplicaSet]{
			Replicas:    func(o *appsv1.ReplicaSet) int32 { return o.GetSpec().GetReplicas() },
			SetReplicas: func(o *appsv1.ReplicaSet, n int32) { o.Spec.Replicas = &n },
			Current:     func(o *appsv1.ReplicaSet) int32 { return o.GetStatus().GetReplicas() },
			Selector:    func(o *appsv1.ReplicaSet) string { return workload.Selector(o.GetSpec().GetSelector()) },
		},
		Fields: map[string]func(*appsv1.ReplicaSet) string{
			"status.replicas": func(o *appsv1.ReplicaSet) string { return decimal(o.GetStatus().GetReplicas()) },
		},
		Table: append(define.Columns[*appsv1.ReplicaSet]{
			define.Integer("Desired", "How many pods are wanted.", func(o *appsv1.ReplicaSet) int64 {
				return int64(o.GetSpec().GetReplicas())
			}),
			define.Integer("Current", "How many pods there are.", func(o *appsv1.ReplicaSet) int64 {
				return int64(o.GetStatus().GetReplicas())
			}),
			define.Integer("Ready", "How many of them are ready.", func(o *appsv1.ReplicaSet) int64 {
				return int64(o.GetStatus().GetReadyReplicas())
			}),
			define.Age[*appsv1.ReplicaSet](),
		}, workload.Wide(func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
			func(o *appsv1.ReplicaSet) string { return workload.Selector(o.GetSpec().GetSelector()) })...),
	}.Strategy()}
}

// DefaultReplicaSet fills in a ReplicaSet.
func DefaultReplicaSet(o *appsv1.ReplicaSet) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	defaults.SetPtr(&o.Spec.Replicas, 1)
	defaults.Message(&o.Spec.Template)
	podspec.DefaultTemplate(o.Spec.Template)
}

// ValidateReplicaSet checks a ReplicaSet that is to be created.
func ValidateReplicaSet(o *appsv1.ReplicaSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkReplicaSet(f, o, nil)
	}
	return f.Causes()
}

// ValidateReplicaSetUpdate checks that a change of a ReplicaSet is allowed. Its selector stays as it is.
func ValidateReplicaSetUpdate(new, old *appsv1.ReplicaSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkReplicaSet(f, new, old.GetMetadata())
		checkSameSelector(f, new.GetSpec().GetSelector(), old.GetSpec().GetSelector())
	}
	return f.Causes()
}

// ValidateReplicaSetStatus checks a change of a ReplicaSet's status.
func ValidateReplicaSetStatus(new, old *appsv1.ReplicaSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s := new.GetStatus()
		workload.CheckCounts(f, f.Root("status"), workload.Counts{
			Replicas: s.GetReplicas(), FullyLabeled: s.GetFullyLabeledReplicas(), Ready: s.GetReadyReplicas(),
			Available: s.GetAvailableReplicas(), Terminating: terminating(s), ObservedGeneration: s.GetObservedGeneration(),
		})
	}
	return f.Causes()
}

func terminating(s *appsv1.ReplicaSetStatus) *int32 {
	if s == nil {
		return nil
	}
	return s.TerminatingReplicas
}

func checkReplicaSet(f *validation.Faults, o *appsv1.ReplicaSet, old *metav1.ObjectMeta) {
	f.CoreMeta(o.GetMetadata(), old, true, validation.NameIsSubdomain)
	spec, at := o.GetSpec(), f.Root("spec")
	f.NotNegative(at.Child("replicas"), int64(spec.GetReplicas()))
	f.NotNegative(at.Child("minReadySeconds"), int64(spec.GetMinReadySeconds()))
	selector := workload.CheckSelector(f, at.Child("selector"), spec.GetSelector(), "deployment")
	if selector != nil {
		workload.CheckTemplate(f, at.Child("template"), spec.GetTemplate(), selector, "ReplicaSet")
	}
}
