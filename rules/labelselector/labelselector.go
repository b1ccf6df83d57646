// Package labelselector reads the label selectors of objects: which pods a spread constraint or an affinity term is
// about, which volumes a claim takes.
//
// It guarantees the answers and the errors of Kubernetes: test/oracle compares them over random selectors and labels.
// It knows nothing of selectors in the query of a list or a watch, which are texts.
package labelselector

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	metav1 "monoplane.dev/api/meta/v1"
)

// Of returns the selector: none at all selects nothing, one that requires nothing selects everything.
func Of(s *metav1.LabelSelector) (labels.Selector, error) {
	switch {
	case s == nil:
		return labels.Nothing(), nil
	case len(s.GetMatchLabels())+len(s.GetMatchExpressions()) == 0:
		return labels.Everything(), nil
	}
	all, err := Requirements(s)
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(all...), nil
}

// OrNothing is Of for selectors that the server has judged: what cannot be read, which it refuses, selects nothing.
func OrNothing(s *metav1.LabelSelector) labels.Selector {
	selector, err := Of(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// Requirements returns what a selector requires, for those who require more besides.
func Requirements(s *metav1.LabelSelector) (labels.Requirements, error) {
	var all labels.Requirements
	add := func(key string, op selection.Operator, values []string) error {
		r, err := labels.NewRequirement(key, op, values)
		if err == nil {
			all = append(all, *r)
		}
		return err
	}
	for k, v := range s.GetMatchLabels() {
		if err := add(k, selection.Equals, []string{v}); err != nil {
			return nil, err
		}
	}
	for _, e := range s.GetMatchExpressions() {
		op, ok := operators[e.GetOperator()]
		if !ok {
			return nil, fmt.Errorf("%q is not a valid label selector operator", e.GetOperator())
		}
		if err := add(e.GetKey(), op, e.GetValues()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}
