package apps

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/portion"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// The ways in which workloads replace pods of an older template: step by step, all at once (Deployments), or not at
// all, which leaves it to others to delete them (StatefulSets, DaemonSets).
const (
	rollingUpdate = "RollingUpdate"
	recreate      = "Recreate"
	onDelete      = "OnDelete"
)

// Deployment describes the kind.
func Deployment(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*appsv1.Deployment]{
		Kind:     appsv1.DeploymentKind,
		Spec:     func(o *appsv1.Deployment) proto.Message { return o.GetSpec() },
		Default:  DefaultDeployment,
		Validate: ValidateDeployment,
		Warn: func(next, live *appsv1.Deployment) validation.Warnings {
			changed := !validation.Equal(next.GetSpec(), live.GetSpec())
			return workload.Warnings(next, true, live == nil, changed, next.GetSpec().GetTemplate())
		},
		Main: registry.TypedUpdateRules[*appsv1.Deployment]{Validate: ValidateDeploymentUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*appsv1.Deployment]{
			// Kubernetes' own controller writes the number of the newest ReplicaSet beside the status.
			"status": {
				Keeps: registry.Labels, OfComponents: registry.Annotations, Validate: ValidateDeploymentStatus,
			},
		},
		Scale: &registry.Scale[*appsv1.Deployment]{
			Replicas:    func(o *appsv1.Deployment) int32 { return o.GetSpec().GetReplicas() },
			SetReplicas: func(o *appsv1.Deployment, n int32) { o.Spec.Replicas = &n },
			Current:     func(o *appsv1.Deployment) int32 { return o.GetStatus().GetReplicas() },
			Selector:    func(o *appsv1.Deployment) string { return workload.Selector(o.GetSpec().GetSelector()) },
		},
		Table: append(define.Columns[*appsv1.Deployment]{
			define.Text("Ready", "How many pods are ready, of those that are wanted.", func(o *appsv1.Deployment) string {
				return fmt.Sprintf("%d/%d", o.GetStatus().GetReadyReplicas(), o.GetSpec().GetReplicas())
			}),
			define.Any("Up-to-date", "How many pods are made of the newest template.", func(o *appsv1.Deployment) any {
				return int64(o.GetStatus().GetUpdatedReplicas())
			}),
			define.Any("Available", "How many pods are available.", func(o *appsv1.Deployment) any {
				return int64(o.GetStatus().GetAvailableReplicas())
			}),
			define.Age[*appsv1.Deployment](),
		}, workload.Wide(func(o *appsv1.Deployment) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
			func(o *appsv1.Deployment) string { return workload.Selector(o.GetSpec().GetSelector()) })...),
	}.Strategy()}
}

// DefaultDeployment fills in a Deployment.
func DefaultDeployment(o *appsv1.Deployment) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaults.SetPtr(&s.Replicas, 1)
	defaults.Message(&s.Template)
	podspec.DefaultTemplate(s.Template)
	defaults.Message(&s.Strategy)
	defaults.Set(&s.Strategy.Type, rollingUpdate)
	if s.Strategy.Type == rollingUpdate {
		defaults.Message(&s.Strategy.RollingUpdate)
		defaultAmount(&s.Strategy.RollingUpdate.MaxUnavailable)
		defaultAmount(&s.Strategy.RollingUpdate.MaxSurge)
	}
	defaults.SetPtr(&s.RevisionHistoryLimit, 10)
	defaults.SetPtr(&s.ProgressDeadlineSeconds, 600)
}

func defaultAmount(v **metav1.IntOrString) {
	if *v == nil {
		*v = portion.Text("25%")
	}
}

// ValidateDeployment checks a Deployment that is to be created.
func ValidateDeployment(o *appsv1.Deployment) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkDeployment(f, o, nil)
	}
	return f.Causes()
}

// ValidateDeploymentUpdate checks that a change of a Deployment is allowed. Its selector stays as it is.
func ValidateDeploymentUpdate(new, old *appsv1.Deployment) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkDeployment(f, new, old.GetMetadata())
		checkSameSelector(f, new.GetSpec().GetSelector(), old.GetSpec().GetSelector())
	}
	return f.Causes()
}

// ValidateDeploymentStatus checks a change of a Deployment's status. The collisions do not become fewer: names that
// were taken would be tried again.
func ValidateDeploymentStatus(new, old *appsv1.Deployment) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s, at := new.GetStatus(), f.Root("status")
		counts := workload.Counts{
			Replicas: s.GetReplicas(), Updated: s.GetUpdatedReplicas(), Ready: s.GetReadyReplicas(),
			Available: s.GetAvailableReplicas(), Unavailable: s.GetUnavailableReplicas(),
			ObservedGeneration: s.GetObservedGeneration(),
		}
		if s != nil {
			counts.Terminating = s.TerminatingReplicas
		}
		workload.CheckCounts(f, at, counts)
		f.NotNegative(at.Child("collisionCount"), int64(s.GetCollisionCount()))
		if s.GetCollisionCount() < old.GetStatus().GetCollisionCount() {
			f.InvalidValue(at.Child("collisionCount"), s.GetCollisionCount(), "cannot be decremented")
		}
	}
	return f.Causes()
}

func checkDeployment(f *validation.Faults, o *appsv1.Deployment, old *metav1.ObjectMeta) {
	f.CoreMeta(o.GetMetadata(), old, true, validation.NameIsSubdomain)
	s, at := o.GetSpec(), f.Root("spec")
	f.NotNegative(at.Child("replicas"), int64(s.GetReplicas()))
	selector := workload.CheckSelector(f, at.Child("selector"), s.GetSelector(), "deployment")
	if selector != nil {
		workload.CheckTemplate(f, at.Child("template"), s.GetTemplate(), selector, "ReplicaSet")
	}
	checkStrategy(f, at.Child("strategy"), s.GetStrategy())
	f.NotNegative(at.Child("minReadySeconds"), int64(s.GetMinReadySeconds()))
	f.NotNegative(at.Child("revisionHistoryLimit"), int64(s.GetRevisionHistoryLimit()))
	if s != nil && s.ProgressDeadlineSeconds != nil {
		f.NotNegative(at.Child("progressDeadlineSeconds"), int64(s.GetProgressDeadlineSeconds()))
		if s.GetProgressDeadlineSeconds() <= s.GetMinReadySeconds() {
			f.InvalidValue(at.Child("progressDeadlineSeconds"), s.GetProgressDeadlineSeconds(),
				"must be greater than minReadySeconds")
		}
	}
}

func checkStrategy(f *validation.Faults, at *validation.Path, s *appsv1.DeploymentStrategy) {
	switch s.GetType() {
	case recreate:
		if s.GetRollingUpdate() != nil {
			f.Forbidden(at.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")
		}
	case rollingUpdate:
		steps, at := s.GetRollingUpdate(), at.Child("rollingUpdate")
		if steps == nil {
			f.Required(at, "this should be defaulted and never be nil")
			return
		}
		unavailable := at.Child("maxUnavailable")
		f.Portion(unavailable, steps.GetMaxUnavailable())
		f.Portion(at.Child("maxSurge"), steps.GetMaxSurge())
		if workload.IsZero(steps.GetMaxUnavailable()) && workload.IsZero(steps.GetMaxSurge()) {
			f.Invalid(unavailable, "0", "may not be 0 when `maxSurge` is 0")
		}
		f.AtMostAll(unavailable, steps.GetMaxUnavailable())
	default:
		f.OneOf(at, s.GetType(), recreate, rollingUpdate)
	}
}

// checkSameSelector checks that the selector of an object stays as it is: its pods would be lost to it.
func checkSameSelector(f *validation.Faults, new, old *metav1.LabelSelector) {
	if !validation.Equal(new, old) {
		f.Replaced(f.Root("spec").Child("selector"), new)
	}
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }
