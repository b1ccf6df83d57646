package framework

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/labelselector"
)

// requirements are those of a selector, and more.
type requirements struct {
	all labels.Requirements
	// err is set by what cannot be read.
	err error
}

func requirementsOf(s *metav1.LabelSelector) *requirements {
	var r requirements
	r.all, r.err = labelselector.Requirements(s)
	return &r
}

func (r *requirements) add(key string, op selection.Operator, value string) {
	one, err := labels.NewRequirement(key, op, []string{value})
	if err != nil {
		r.err = err
		return
	}
	r.all = append(r.all, *one)
}

// selector requires all of it. What cannot be read, which the server has refused, selects nothing.
func (r *requirements) selector() labels.Selector {
	if r.err != nil {
		return labels.Nothing()
	}
	return labels.NewSelector().Add(r.all...)
}

func selectorOf(s *metav1.LabelSelector, more map[string]string) labels.Selector {
	r := requirementsOf(s)
	for k, v := range more {
		r.add(k, selection.Equals, v)
	}
	return r.selector()
}

// termSelector returns which pods a term is about. The server writes matchLabelKeys and mismatchLabelKeys into the
// selector as it creates the pod, with the values that the pod has then; those that it has not written are required
// with the present ones.
func termSelector(pod *metav1.ObjectMeta, t *corev1.PodAffinityTerm) labels.Selector {
	s := t.GetLabelSelector()
	if s == nil {
		return labels.Nothing()
	}
	r := requirementsOf(s)
	r.addKeys(pod, s, t.GetMatchLabelKeys(), selection.In, "In")
	r.addKeys(pod, s, t.GetMismatchLabelKeys(), selection.NotIn, "NotIn")
	return r.selector()
}

func (r *requirements) addKeys(
	pod *metav1.ObjectMeta, s *metav1.LabelSelector, keys []string, op selection.Operator, name string,
) {
	for _, k := range keys {
		v, ok := pod.GetLabels()[k]
		written := slices.ContainsFunc(s.GetMatchExpressions(), func(e *metav1.LabelSelectorRequirement) bool {
			return e.GetKey() == k && e.GetOperator() == name && len(e.GetValues()) == 1
		})
		if ok && !written {
			r.add(k, op, v)
		}
	}
}

// textOf tells selectors apart; those that select everything and nothing are both "" as strings.
func textOf(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "none"
	}
	return "(" + s.String() + ")"
}
