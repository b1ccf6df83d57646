package apps

import (
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
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// templateGeneration is the annotation in which the server counts the templates of a DaemonSet. In Kubernetes' first
// versions it was a field, and clients still look at it.
const templateGeneration = "deprecated.daemonset.template.generation"

// DaemonSet describes the kind.
func DaemonSet(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*appsv1.DaemonSet]{
		Kind:       appsv1.DaemonSetKind,
		Spec:       func(o *appsv1.DaemonSet) proto.Message { return o.GetSpec() },
		Default:    DefaultDaemonSet,
		DefaultNew: DefaultNewDaemonSet,
		Validate:   ValidateDaemonSet,
		Warn: func(next, live *appsv1.DaemonSet) validation.Warnings {
			changed := !validation.Equal(next.GetSpec().GetTemplate(), live.GetSpec().GetTemplate())
			return workload.Warnings(next, false, live == nil, changed, next.GetSpec().GetTemplate())
		},
		Main: registry.TypedUpdateRules[*appsv1.DaemonSet]{Apply: applyDaemonSet, Validate: ValidateDaemonSetUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*appsv1.DaemonSet]{
			"status": {Validate: ValidateDaemonSetStatus},
		},
		Table: append(define.Columns[*appsv1.DaemonSet]{
			define.Integer("Desired", "How many nodes are to have a pod.", func(o *appsv1.DaemonSet) int64 {
				return int64(o.GetStatus().GetDesiredNumberScheduled())
			}),
			define.Integer("Current", "How many of them have one.", func(o *appsv1.DaemonSet) int64 {
				return int64(o.GetStatus().GetCurrentNumberScheduled())
			}),
			define.Integer("Ready", "On how many it is ready.", func(o *appsv1.DaemonSet) int64 {
				return int64(o.GetStatus().GetNumberReady())
			}),
			define.Integer("Up-to-date", "On how many it is made of the newest template.", func(o *appsv1.DaemonSet) int64 {
				return int64(o.GetStatus().GetUpdatedNumberScheduled())
			}),
			define.Integer("Available", "On how many it is available.", func(o *appsv1.DaemonSet) int64 {
				return int64(o.GetStatus().GetNumberAvailable())
			}),
			define.Text("Node Selector", "Which labels a node must have.", func(o *appsv1.DaemonSet) string {
				return labels.FormatLabels(o.GetSpec().GetTemplate().GetSpec().GetNodeSelector())
			}),
			define.Age[*appsv1.DaemonSet](),
		}, workload.Wide(func(o *appsv1.DaemonSet) *corev1.PodTemplateSpec { return o.GetSpec().GetTemplate() },
			func(o *appsv1.DaemonSet) string { return workload.Selector(o.GetSpec().GetSelector()) })...),
	}.Strategy()}
}

// DefaultDaemonSet fills in a DaemonSet.
func DefaultDaemonSet(o *appsv1.DaemonSet) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	s := o.Spec
	defaults.Message(&s.Template)
	podspec.DefaultTemplate(s.Template)
	defaults.Message(&s.UpdateStrategy)
	defaults.Set(&s.UpdateStrategy.Type, rollingUpdate)
	if s.UpdateStrategy.Type == rollingUpdate {
		defaults.Message(&s.UpdateStrategy.RollingUpdate)
		steps := s.UpdateStrategy.RollingUpdate
		if steps.MaxUnavailable == nil {
			steps.MaxUnavailable = &metav1.IntOrString{IntVal: 1}
		}
		defaults.Message(&steps.MaxSurge) // none
	}
	defaults.SetPtr(&s.RevisionHistoryLimit, 10)
}

// DefaultNewDaemonSet fills in a DaemonSet that is to be created. A backup may bring its count of templates along.
func DefaultNewDaemonSet(o *appsv1.DaemonSet) {
	o.Status = nil
	DefaultDaemonSet(o)
	text, given := o.Metadata.GetAnnotations()[templateGeneration]
	if n, err := strconv.ParseInt(text, 10, 64); !given || err == nil && n < 1 {
		setTemplateGeneration(o, "1")
	}
}

// applyDaemonSet returns what an update makes of a DaemonSet: all but its status and its count of templates is as it
// was asked for.
func applyDaemonSet(asked, live *appsv1.DaemonSet) *appsv1.DaemonSet {
	next := &appsv1.DaemonSet{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	DefaultDaemonSet(next)
	next.Status = live.Status
	count := live.GetMetadata().GetAnnotations()[templateGeneration]
	if !validation.Equal(next.GetSpec().GetTemplate(), live.GetSpec().GetTemplate()) {
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			n = 0 // nobody can write such a thing; the count begins anew
		}
		count = strconv.FormatInt(n+1, 10)
	}
	setTemplateGeneration(next, count)
	return next
}

func setTemplateGeneration(o *appsv1.DaemonSet, count string) {
	if o.Metadata.Annotations == nil {
		o.Metadata.Annotations = map[string]string{}
	}
	o.Metadata.Annotations[templateGeneration] = count
}

// ValidateDaemonSet checks a DaemonSet that is to be created.
func ValidateDaemonSet(o *appsv1.DaemonSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkDaemonSet(f, o, nil)
		text := o.GetMetadata().GetAnnotations()[templateGeneration]
		if _, err := strconv.ParseInt(text, 10, 64); text != "" && err != nil {
			f.Invalid(f.Root("metadata").Child("annotations").Key(templateGeneration), text, "must be a whole number")
		}
	}
	return f.Causes()
}

// ValidateDaemonSetUpdate checks that a change of a DaemonSet is allowed. Its selector stays as it is.
func ValidateDaemonSetUpdate(new, old *appsv1.DaemonSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkDaemonSet(f, new, old.GetMetadata())
		checkSameSelector(f, new.GetSpec().GetSelector(), old.GetSpec().GetSelector())
	}
	return f.Causes()
}

// ValidateDaemonSetStatus checks a change of a DaemonSet's status. The collisions do not become fewer: names that were
// taken would be tried again.
func ValidateDaemonSetStatus(new, old *appsv1.DaemonSet) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s, at := new.GetStatus(), f.Root("status")
		for _, c := range []struct {
			name string
			n    int64
		}{
			{"currentNumberScheduled", int64(s.GetCurrentNumberScheduled())},
			{"numberMisscheduled", int64(s.GetNumberMisscheduled())},
			{"desiredNumberScheduled", int64(s.GetDesiredNumberScheduled())},
			{"numberReady", int64(s.GetNumberReady())},
			{"observedGeneration", s.GetObservedGeneration()},
			{"updatedNumberScheduled", int64(s.GetUpdatedNumberScheduled())},
			{"numberAvailable", int64(s.GetNumberAvailable())},
			{"numberUnavailable", int64(s.GetNumberUnavailable())},
			{"collisionCount", int64(s.GetCollisionCount())},
		} {
			f.NotNegative(at.Child(c.name), c.n)
		}
		if s.GetCollisionCount() < old.GetStatus().GetCollisionCount() {
			f.InvalidValue(at.Child("collisionCount"), s.GetCollisionCount(), "cannot be decremented")
		}
	}
	return f.Causes()
}

func checkDaemonSet(f *validation.Faults, o *appsv1.DaemonSet, old *metav1.ObjectMeta) {
	f.CoreMeta(o.GetMetadata(), old, true, validation.NameIsSubdomain)
	s, at := o.GetSpec(), f.Root("spec")
	if asked := s.GetSelector(); asked != nil {
		f.LabelSelector(at.Child("selector"), asked)
		if len(asked.GetMatchLabels())+len(asked.GetMatchExpressions()) == 0 {
			f.Invalid(at.Child("selector"), asked.String(), "empty selector is invalid for daemonset")
		}
	}
	selector, _ := labelselector.Of(s.GetSelector()) // what cannot be read has been found above
	workload.CheckTemplate(f, at.Child("template"), s.GetTemplate(), selector, "DaemonSet")
	f.NotNegative(at.Child("minReadySeconds"), int64(s.GetMinReadySeconds()))
	checkUpdateOfDaemons(f, at.Child("updateStrategy"), s.GetUpdateStrategy())
	f.NotNegative(at.Child("revisionHistoryLimit"), int64(s.GetRevisionHistoryLimit()))
}

// checkUpdateOfDaemons checks how pods of a DaemonSet are replaced: either one may be missing for a while, or there
// may be two of a node.
func checkUpdateOfDaemons(f *validation.Faults, at *validation.Path, s *appsv1.DaemonSetUpdateStrategy) {
	switch s.GetType() {
	case onDelete:
	case rollingUpdate:
		steps, at := s.GetRollingUpdate(), at.Child("rollingUpdate")
		if steps == nil {
			f.Required(at, "")
			return
		}
		unavailable, surge := at.Child("maxUnavailable"), at.Child("maxSurge")
		f.Portion(unavailable, steps.GetMaxUnavailable())
		f.Portion(surge, steps.GetMaxSurge())
		f.AtMostAll(unavailable, steps.GetMaxUnavailable())
		f.AtMostAll(surge, steps.GetMaxSurge())
		switch missing, more := !workload.IsZero(steps.GetMaxUnavailable()), !workload.IsZero(steps.GetMaxSurge()); {
		case missing && more:
			f.Invalid(surge, steps.GetMaxSurge().String(), "may not be set when maxUnavailable is non-zero")
		case !missing && !more:
			f.Required(unavailable, "cannot be 0 when maxSurge is 0")
		}
	default:
		f.OneOf(at, s.GetType(), rollingUpdate, onDelete)
	}
}
