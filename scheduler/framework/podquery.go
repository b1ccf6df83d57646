package framework

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// PodQuery selects pods that count: those of one namespace that have the labels and are not about to go. It is immutable.
type PodQuery struct {
	namespace string
	selector  labels.Selector
	// text says the same in one way only, so that equal queries share a counter.
	text string
}

// NewPodQuery returns a query. A nil or empty selector counts nothing (spec: SPREAD-2). Requirements that do not parse, which the
// server has refused, count nothing either. More are labels that are required besides.
func NewPodQuery(namespace string, s *metav1.LabelSelector, more map[string]string) *PodQuery {
	q := &PodQuery{namespace: namespace, selector: labels.Nothing()}
	if s != nil {
		q.selector = selectorOf(s, more)
	}
	q.text = namespace + "/" + q.selector.String()
	return q
}

var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}

func selectorOf(s *metav1.LabelSelector, more map[string]string) labels.Selector {
	var all []labels.Requirement
	ok := true
	add := func(key string, op selection.Operator, values []string) {
		r, err := labels.NewRequirement(key, op, values)
		if err != nil {
			ok = false
			return
		}
		all = append(all, *r)
	}
	for _, m := range []map[string]string{s.GetMatchLabels(), more} {
		for k, v := range m {
			add(k, selection.Equals, []string{v})
		}
	}
	for _, e := range s.GetMatchExpressions() {
		add(e.GetKey(), operators[e.GetOperator()], e.GetValues())
	}
	if !ok {
		return labels.Nothing()
	}
	return labels.NewSelector().Add(all...)
}

// Selects says whether a pod with these labels in the query's namespace is selected, whatever else is known about it.
func (q *PodQuery) Selects(podLabels map[string]string) bool {
	return q.selector.Matches(labels.Set(podLabels))
}

// Counts says whether the pod counts. With an empty selector none does.
func (q *PodQuery) Counts(p *corev1.Pod) bool {
	m := p.GetMetadata()
	return m.GetNamespace() == q.namespace && m.GetDeletionTimestamp() == nil && !q.selector.Empty() && q.Selects(m.GetLabels())
}
