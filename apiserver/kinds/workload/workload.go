// Package workload is what the kinds have in common whose objects keep pods of a template: how their selectors,
// templates and counts are judged, and how kubectl get shows their containers. It knows no kind.
package workload

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/rules/portion"

	autoscalingv1 "monoplane.dev/api/autoscaling/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// CheckSelector checks a selector, which must select something, and returns it; nil when it cannot be read.
func CheckSelector(f *validation.Faults, at *validation.Path, s *metav1.LabelSelector, kind string) labels.Selector {
	if s == nil {
		f.Required(at, "")
	} else {
		f.LabelSelector(at, s)
		if len(s.GetMatchLabels())+len(s.GetMatchExpressions()) == 0 {
			f.Invalid(at, s.String(), "empty selector is invalid for "+kind)
		}
	}
	selector, err := labelselector.Of(s)
	if err != nil {
		f.Invalid(at, s.String(), "invalid label selector")
		return nil
	}
	return selector
}

// CheckTemplate checks a template of pods that run for ever, which selector, nil for none that can be read, has to
// match. Kind is what the template belongs to.
func CheckTemplate(
	f *validation.Faults, at *validation.Path, t *corev1.PodTemplateSpec, selector labels.Selector, kind string,
) {
	CheckSelected(f, at, t, selector)
	podspec.CheckTemplate(f, at, t)
	CheckRunsForEver(f, at, t, kind)
}

// CheckRunsForEver checks that nothing in a template says that its pods end. Kind is what the template belongs to.
func CheckRunsForEver(f *validation.Faults, at *validation.Path, t *corev1.PodTemplateSpec, kind string) {
	f.OneOf(at.Child("spec").Child("restartPolicy"), t.GetSpec().GetRestartPolicy(), "Always")
	if t.GetSpec() != nil && t.Spec.ActiveDeadlineSeconds != nil {
		f.Forbidden(at.Child("spec").Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported")
	}
}

// CheckSelected checks that a selector, nil for none that can be read, matches the labels of a template.
func CheckSelected(
	f *validation.Faults, at *validation.Path, t *corev1.PodTemplateSpec, selector labels.Selector,
) {
	set := t.GetMetadata().GetLabels()
	if selector != nil && !selector.Empty() && !selector.Matches(labels.Set(set)) {
		f.InvalidValue(at.Child("metadata").Child("labels"), set, "`selector` does not match template `labels`")
	}
}

// Warnings returns what whoever makes an object that keeps pods of a template, or changes its spec, is told. Named
// says that the names of its pods begin with its own.
func Warnings(o object.Object, named, made, changed bool, t *corev1.PodTemplateSpec) validation.Warnings {
	var w validation.Warnings
	if made && named {
		w.NamesPods(o.GetMetadata().GetName())
	}
	if made || changed {
		w = append(w, podspec.WarningsOfTemplate(validation.NewPath("spec", "template"), t)...)
	}
	return w
}

// Counts are those of a status.
type Counts struct {
	Replicas, FullyLabeled, Current, Updated, Ready, Available, Unavailable int32
	Terminating                                                             *int32
	ObservedGeneration                                                      int64
}

// CheckCounts checks the counts of a status: none is negative, and no part is more than the whole.
func CheckCounts(f *validation.Faults, at *validation.Path, c Counts) {
	const beyond = "cannot be greater than status.replicas"
	f.NotNegative(at.Child("observedGeneration"), c.ObservedGeneration)
	f.NotNegative(at.Child("replicas"), int64(c.Replicas))
	f.NotNegative(at.Child("unavailableReplicas"), int64(c.Unavailable))
	if c.Terminating != nil {
		f.NotNegative(at.Child("terminatingReplicas"), int64(*c.Terminating))
	}
	part := func(name string, n int32) {
		f.NotNegative(at.Child(name), int64(n))
		if n > c.Replicas {
			f.InvalidValue(at.Child(name), n, beyond)
		}
	}
	part("fullyLabeledReplicas", c.FullyLabeled)
	part("currentReplicas", c.Current)
	part("updatedReplicas", c.Updated)
	part("readyReplicas", c.Ready)
	part("availableReplicas", c.Available)
	if c.Available > c.Ready {
		f.InvalidValue(at.Child("availableReplicas"), c.Available, "cannot be greater than readyReplicas")
	}
}

// IsZero says whether an amount is 0 of any total. A text that is no amount, which is a fault of its own, counts as 0.
func IsZero(v *metav1.IntOrString) bool {
	if !portion.IsPercentage(v) {
		return v.GetIntVal() == 0
	}
	if n, ok := portion.Percent(v.GetStrVal()); ok {
		return n == 0
	}
	n, err := strconv.Atoi(v.GetStrVal())
	return err != nil || n == 0
}

// Wide are the columns of -o wide: the containers of a template, their images, and a selector.
func Wide[T object.Object](template func(T) *corev1.PodTemplateSpec, selector func(T) string) []define.Column[T] {
	return append(WideContainers(template), define.Text("Selector", "Which pods belong to it.", selector).Wide())
}

// WideContainers are the columns of -o wide for a kind that does not show its selector.
func WideContainers[T object.Object](template func(T) *corev1.PodTemplateSpec) []define.Column[T] {
	list := func(of func(*corev1.Container) string) func(T) string {
		return func(o T) string {
			var all []string
			for _, c := range template(o).GetSpec().GetContainers() {
				all = append(all, of(c))
			}
			return strings.Join(all, ",")
		}
	}
	return []define.Column[T]{
		define.Text("Containers", "Names of the containers.", list((*corev1.Container).GetName)).Wide(),
		define.Text("Images", "Images of the containers.", list((*corev1.Container).GetImage)).Wide(),
	}
}

// ScaleTable is how kubectl get shows the scale of an object of any kind.
func ScaleTable() table.Definition {
	return define.Columns[*autoscalingv1.Scale]{
		define.Integer("Desired", "How many replicas are wanted.", func(s *autoscalingv1.Scale) int64 {
			return int64(s.GetSpec().GetReplicas())
		}),
		define.Integer("Available", "How many replicas there are.", func(s *autoscalingv1.Scale) int64 {
			return int64(s.GetStatus().GetReplicas())
		}),
		define.Age[*autoscalingv1.Scale](),
	}
}

// Selector returns a selector as a text, as in a query.
func Selector(s *metav1.LabelSelector) string {
	selector, err := labelselector.Of(s)
	if err != nil {
		return "<invalid>"
	}
	return selector.String()
}
