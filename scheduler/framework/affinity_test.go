package framework

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: SCHED-4
func TestTermQuery(t *testing.T) {
	expr := func(key, op string, values ...string) *metav1.LabelSelectorRequirement {
		return &metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	web := labelled(map[string]string{"app": "web"})
	namespaces := Namespaces{"b": {"team": "1"}}
	team := labelled(map[string]string{"team": "1"})
	merged := &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{expr("hash", "In", "0")}}
	for name, c := range map[string]struct {
		term    *corev1.PodAffinityTerm
		in      string
		labels  map[string]string
		leaving bool
		counts  bool
	}{
		"own namespace": {&corev1.PodAffinityTerm{LabelSelector: web}, "a", map[string]string{"app": "web"},
			false, true},
		"leaving": {&corev1.PodAffinityTerm{LabelSelector: web}, "a", map[string]string{"app": "web"},
			true, true},
		"other labels": {&corev1.PodAffinityTerm{LabelSelector: web}, "a", map[string]string{"app": "db"},
			false, false},
		"other namespace": {&corev1.PodAffinityTerm{LabelSelector: web}, "b", map[string]string{"app": "web"},
			false, false},
		"listed namespace": {&corev1.PodAffinityTerm{LabelSelector: web, Namespaces: []string{"c", "b", "b"}},
			"b", map[string]string{"app": "web"}, false, true},
		"own namespace not listed": {&corev1.PodAffinityTerm{LabelSelector: web, Namespaces: []string{"b"}}, "a",
			map[string]string{"app": "web"}, false, false},
		"namespace selected": {&corev1.PodAffinityTerm{LabelSelector: web, NamespaceSelector: team}, "b",
			map[string]string{"app": "web"}, false, true},
		"namespace not selected": {&corev1.PodAffinityTerm{LabelSelector: web, NamespaceSelector: team}, "a",
			map[string]string{"app": "web"}, false, false},
		"all namespaces": {&corev1.PodAffinityTerm{LabelSelector: web, NamespaceSelector: labelled(nil)},
			"z", map[string]string{"app": "web"}, false, true},
		"listed or selected": {&corev1.PodAffinityTerm{LabelSelector: web, Namespaces: []string{"c"},
			NamespaceSelector: team}, "c", map[string]string{"app": "web"}, false, true},
		"no selector":    {&corev1.PodAffinityTerm{}, "a", map[string]string{"app": "web"}, false, false},
		"empty selector": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil)}, "a", nil, false, true},
		"matchLabelKeys": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			MatchLabelKeys: []string{"hash"}}, "a", map[string]string{"hash": "1"}, false, true},
		"matchLabelKeys differ": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			MatchLabelKeys: []string{"hash"}}, "a", map[string]string{"hash": "2"}, false, false},
		"mismatchLabelKeys": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			MismatchLabelKeys: []string{"hash"}}, "a", map[string]string{"hash": "1"}, false, false},
		"mismatchLabelKeys differ": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			MismatchLabelKeys: []string{"hash"}}, "a", nil, false, true},
		"a key that the owner lacks": {&corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			MatchLabelKeys: []string{"gone"}}, "a", nil, false, true},
		"written at creation": {&corev1.PodAffinityTerm{LabelSelector: merged, MatchLabelKeys: []string{"hash"}},
			"a", map[string]string{"hash": "0"}, false, true},
		"written at creation, differing": {&corev1.PodAffinityTerm{LabelSelector: merged, MatchLabelKeys: []string{"hash"}},
			"a", map[string]string{"hash": "1"}, false, false},
	} {
		q := newTermQuery(&metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{"hash": "1"}}, c.term)
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: c.in, Labels: c.labels}}
		if c.leaving {
			p.Metadata.DeletionTimestamp = &metav1.Time{Seconds: 1}
		}
		if got := q.Counts(p, namespaces); got != c.counts {
			t.Errorf("%s: %v", name, got)
		}
		if c.counts && !q.MayCount(p) {
			t.Errorf("%s: counts and may not", name)
		}
	}
}

// Queries that select different pods must not share a counter.
func TestQueriesAreToldApart(t *testing.T) {
	owner := &metav1.ObjectMeta{Namespace: "a"}
	seen := map[string]string{}
	for name, q := range map[string]*PodQuery{
		"spread by nothing": NewPodQuery("a", nil, nil),
		"nothing":           newTermQuery(owner, &corev1.PodAffinityTerm{}),
		"everything":        newTermQuery(owner, &corev1.PodAffinityTerm{LabelSelector: labelled(nil)}),
		"other namespace": newTermQuery(owner, &corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			Namespaces: []string{"b"}}),
		"all namespaces": newTermQuery(owner, &corev1.PodAffinityTerm{LabelSelector: labelled(nil),
			NamespaceSelector: labelled(nil)}),
		"spread": NewPodQuery("a", labelled(map[string]string{"x": "y"}), nil),
		"term": newTermQuery(owner,
			&corev1.PodAffinityTerm{LabelSelector: labelled(map[string]string{"x": "y"})}),
	} {
		if other, ok := seen[q.text]; ok {
			t.Errorf("%s and %s are both %q", name, other, q.text)
		}
		seen[q.text] = name
	}
}
