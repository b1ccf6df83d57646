package framework

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}

// requirements collects what a selector asks for.
type requirements struct {
	all []labels.Requirement
	// wrong is set by what does not parse.
	wrong bool
}

func (r *requirements) add(key string, op selection.Operator, values []string) {
	one, err := labels.NewRequirement(key, op, values)
	if err != nil {
		r.wrong = true
		return
	}
	r.all = append(r.all, *one)
}

func (r *requirements) addSelector(s *metav1.LabelSelector) {
	for k, v := range s.GetMatchLabels() {
		r.add(k, selection.Equals, []string{v})
	}
	for _, e := range s.GetMatchExpressions() {
		r.add(e.GetKey(), operators[e.GetOperator()], e.GetValues())
	}
}

// selector requires all of it. What does not parse, which the server has refused, selects nothing.
func (r *requirements) selector() labels.Selector {
	if r.wrong {
		return labels.Nothing()
	}
	return labels.NewSelector().Add(r.all...)
}

func selectorOf(s *metav1.LabelSelector, more map[string]string) labels.Selector {
	var r requirements
	r.addSelector(s)
	for k, v := range more {
		r.add(k, selection.Equals, []string{v})
	}
	return r.selector()
}

// termSelector returns which pods a term is about. The server writes matchLabelKeys and mismatchLabelKeys into the selector as it
// creates the pod, with the values that the pod has then; those that it has not written are required with the present ones.
func termSelector(pod *metav1.ObjectMeta, t *corev1.PodAffinityTerm) labels.Selector {
	s := t.GetLabelSelector()
	if s == nil {
		return labels.Nothing()
	}
	var r requirements
	r.addSelector(s)
	r.addKeys(pod, s, t.GetMatchLabelKeys(), "In")
	r.addKeys(pod, s, t.GetMismatchLabelKeys(), "NotIn")
	return r.selector()
}

func (r *requirements) addKeys(pod *metav1.ObjectMeta, s *metav1.LabelSelector, keys []string, operator string) {
	for _, k := range keys {
		v, ok := pod.GetLabels()[k]
		written := slices.ContainsFunc(s.GetMatchExpressions(), func(e *metav1.LabelSelectorRequirement) bool {
			return e.GetKey() == k && e.GetOperator() == operator && len(e.GetValues()) == 1
		})
		if ok && !written {
			r.add(k, operators[operator], []string{v})
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
