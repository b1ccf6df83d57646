package core

import (
	"maps"
	"strconv"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/propagation"

	corev1 "monoplane.dev/api/core/v1"
)

// ReplicationController describes the kind.
func ReplicationController(define.Config) define.Definition {
	selector := func(o *corev1.ReplicationController) string {
		return labels.SelectorFromSet(o.GetSpec().GetSelector()).String()
	}
	return define.Definition{Strategy: registry.Typed[*corev1.ReplicationController]{
		Kind:       corev1.ReplicationControllerKind,
		Dependents: propagation.Orphans, // as before there was a choice
		Spec:       func(o *corev1.ReplicationController) proto.Message { return o.GetSpec() },
		Default:    DefaultReplicationController,
		Validate:   ValidateReplicationController,
		Warn: func(next, live *corev1.ReplicationController) validation.Warnings {
			changed := !validation.Equal(next.GetSpec(), live.GetSpec())
			return workload.Warnings(next, true, live == nil, changed, next.GetSpec().GetTemplate())
		},
		Main: registry.TypedUpdateRules[*corev1.ReplicationController]{Validate: ValidateReplicationControllerUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.ReplicationController]{
			"status": {Validate: ValidateReplicationControllerStatus},
		},
		Scale: &registry.Scale[*corev1.ReplicationController]{
			Replicas:    func(o *corev1.ReplicationController) int32 { return o.GetSpec().GetReplicas() },
			SetReplicas: func(o *corev1.ReplicationController, n int32) { o.Spec.Replicas = &n },
			Current:     func(o *corev1.ReplicationController) int32 { return o.GetStatus().GetReplicas() },
			Selector:    selector,
		},
		Fields: map[string]func(*corev1.ReplicationController) string{
			"status.replicas": func(o *corev1.ReplicationController) string {
				return strconv.Itoa(int(o.GetStatus().GetReplicas()))
			},
		},
		Table: append(define.Columns[*corev1.ReplicationController]{
			define.Integer("Desired", "How many pods are wanted.", func(o *corev1.ReplicationController) int64 {
				return int64(o.GetSpec().GetReplicas())
			}),
			define.Integer("Current", "How many pods there are.", func(o *corev1.ReplicationController) int64 {
				return int64(o.GetStatus().GetReplicas())
			}),
			define.Integer("Ready", "How many of them are ready.", func(o *corev1.ReplicationController) int64 {
				return int64(o.GetStatus().GetReadyReplicas())
			}),
			define.Age[*corev1.ReplicationController](),
		}, workload.Wide(func(o *corev1.ReplicationController) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
			func(o *corev1.ReplicationController) string { return labels.FormatLabels(o.GetSpec().GetSelector()) })...),
	}.Strategy()}
}

// DefaultReplicationController fills in a ReplicationController: its selector and its own labels are those of its
// template when it has none.
func DefaultReplicationController(o *corev1.ReplicationController) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	defaults.SetPtr(&o.Spec.Replicas, 1)
	if o.Spec.Template == nil {
		return
	}
	podspec.DefaultTemplate(o.Spec.Template)
	set := o.Spec.Template.Metadata.Labels
	if len(o.Spec.Selector) == 0 {
		o.Spec.Selector = maps.Clone(set)
	}
	if len(o.Metadata.Labels) == 0 {
		o.Metadata.Labels = maps.Clone(set)
	}
}

// ValidateReplicationController checks a ReplicationController that is to be created.
func ValidateReplicationController(o *corev1.ReplicationController) []apierrors.Cause {
	return ValidateReplicationControllerUpdate(o, nil)
}

// ValidateReplicationControllerUpdate checks that a change of a ReplicationController is allowed. All of its spec may
// change.
func ValidateReplicationControllerUpdate(new, old *corev1.ReplicationController) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s, at := new.GetSpec(), f.Root("spec")
		f.NotNegative(at.Child("minReadySeconds"), int64(s.GetMinReadySeconds()))
		f.NotNegative(at.Child("replicas"), int64(s.GetReplicas()))
		if len(s.GetSelector()) == 0 {
			f.Required(at.Child("selector"), "")
		}
		if s.GetTemplate() == nil {
			f.Required(at.Child("template"), "")
			continue
		}
		workload.CheckTemplate(f, at.Child("template"), s.GetTemplate(), labels.SelectorFromSet(s.GetSelector()),
			"ReplicationController")
	}
	return f.Causes()
}

// ValidateReplicationControllerStatus checks a change of a ReplicationController's status.
func ValidateReplicationControllerStatus(new, old *corev1.ReplicationController) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s := new.GetStatus()
		workload.CheckCounts(f, f.Root("status"), workload.Counts{
			Replicas: s.GetReplicas(), FullyLabeled: s.GetFullyLabeledReplicas(), Ready: s.GetReadyReplicas(),
			Available: s.GetAvailableReplicas(), ObservedGeneration: s.GetObservedGeneration(),
		})
	}
	return f.Causes()
}
