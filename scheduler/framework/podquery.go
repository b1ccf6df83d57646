package framework

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/labelselector"
)

// PodQuery selects pods that count: those of some namespaces that have the labels. It is immutable.
type PodQuery struct {
	namespaces []string
	// byLabels chooses more namespaces; nil for none.
	byLabels labels.Selector
	selector labels.Selector
	// leaving says whether pods that are about to go count, too.
	leaving bool
	// all are queries that must all select a pod, instead of the above.
	all []*PodQuery
	// text says the same in one way only, so that equal queries share a counter.
	text string
}

// NewPodQuery returns the query of a spread constraint, which leaves out pods that are about to go. A nil or empty
// selector counts nothing (spec: SPREAD-2). Requirements that do not parse, which the server has refused, count
// nothing either. More are labels that are required besides.
func NewPodQuery(namespace string, s *metav1.LabelSelector, more map[string]string) *PodQuery {
	q := &PodQuery{namespaces: []string{namespace}, selector: labels.Nothing()}
	if s != nil {
		if q.selector = selectorOf(s, more); q.selector.Empty() {
			q.selector = labels.Nothing()
		}
	}
	q.text = namespace + "/" + textOf(q.selector)
	return q
}

// newTermQuery returns the query of a term of a pod's inter-pod affinity. Pods that are about to go count as long as
// they are there. An empty selector selects every pod, none selects nothing.
func newTermQuery(pod *metav1.ObjectMeta, t *corev1.PodAffinityTerm) *PodQuery {
	q := &PodQuery{namespaces: t.GetNamespaces(), selector: termSelector(pod, t), leaving: true}
	if s := t.GetNamespaceSelector(); s != nil {
		q.byLabels = labelselector.OrNothing(s)
	} else if len(q.namespaces) == 0 {
		q.namespaces = []string{pod.GetNamespace()}
	}
	if len(q.namespaces) > 1 {
		q.namespaces = slices.Compact(slices.Sorted(slices.Values(q.namespaces)))
	}
	q.text = strings.Join(q.namespaces, ",") + "/"
	if q.byLabels != nil {
		q.text += textOf(q.byLabels)
	}
	q.text += "/" + textOf(q.selector)
	return q
}

// allOf returns the query that selects what all of them select.
func allOf(queries []*PodQuery) *PodQuery {
	if len(queries) == 1 {
		return queries[0]
	}
	texts := make([]string, len(queries))
	for i, q := range queries {
		texts[i] = q.text
	}
	return &PodQuery{all: queries, text: strings.Join(texts, " & ")}
}

// Selects says whether a pod with these labels in the query's namespaces is selected, whatever else is known about it.
func (q *PodQuery) Selects(podLabels map[string]string) bool {
	for _, one := range q.all {
		if !one.Selects(podLabels) {
			return false
		}
	}
	return q.all != nil || q.selector.Matches(labels.Set(podLabels))
}

// Counts says whether the pod counts, given the labels of namespaces.
func (q *PodQuery) Counts(p *corev1.Pod, n Namespaces) bool {
	for _, one := range q.all {
		if !one.Counts(p, n) {
			return false
		}
	}
	if q.all != nil {
		return true
	}
	m := p.GetMetadata()
	return q.In(m.GetNamespace(), n[m.GetNamespace()]) && (q.leaving || m.GetDeletionTimestamp() == nil) &&
		q.Selects(m.GetLabels())
}

// MayCount says whether the pod counts when its namespace has the right labels.
func (q *PodQuery) MayCount(p *corev1.Pod) bool {
	for _, one := range q.all {
		if !one.MayCount(p) {
			return false
		}
	}
	if q.all != nil {
		return true
	}
	m := p.GetMetadata()
	return (q.byLabels != nil || slices.Contains(q.namespaces, m.GetNamespace())) &&
		(q.leaving || m.GetDeletionTimestamp() == nil) && q.Selects(m.GetLabels())
}

// In says whether pods of a namespace that has these labels can count.
func (q *PodQuery) In(namespace string, namespaceLabels map[string]string) bool {
	for _, one := range q.all {
		if !one.In(namespace, namespaceLabels) {
			return false
		}
	}
	return q.all != nil || slices.Contains(q.namespaces, namespace) || q.byLabels != nil &&
		q.byLabels.Matches(labels.Set(namespaceLabels))
}

// choosesNamespaces says whether the labels of namespaces matter.
func (q *PodQuery) choosesNamespaces() bool {
	return q.byLabels != nil && !q.byLabels.Empty() || slices.ContainsFunc(q.all, (*PodQuery).choosesNamespaces)
}
