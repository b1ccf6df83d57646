package labelselector_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/labelselector"
)

// expressions reads "app In a,b" and the like.
func expressions(texts ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for _, text := range texts {
		w := strings.Fields(text)
		e := &metav1.LabelSelectorRequirement{Key: w[0], Operator: w[1]}
		if len(w) > 2 {
			e.Values = strings.Split(w[2], ",")
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

// spec: SPREAD-2
func TestOf(t *testing.T) {
	app := labels.Set{"app": "a", "empty": ""}
	with := func(s *metav1.LabelSelector, k, v string) *metav1.LabelSelector {
		s.MatchLabels = map[string]string{k: v}
		return s
	}
	for _, c := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     bool
		err      string
	}{
		{"none", nil, false, ""},
		{"an empty one", &metav1.LabelSelector{}, true, ""},
		{"the label", with(expressions(), "app", "a"), true, ""},
		{"an empty label", with(expressions(), "empty", ""), true, ""},
		{"a label that is not there", with(expressions(), "other", ""), false, ""},
		{"another value", with(expressions(), "app", "b"), false, ""},
		{"the label and an expression", with(expressions("app NotIn a"), "app", "a"), false, ""},
		{"one of several", expressions("app In b,a"), true, ""},
		{"none of several", expressions("app NotIn b,c", "other NotIn a"), true, ""},
		{"there", expressions("empty Exists"), true, ""},
		{"not there", expressions("app Exists", "other DoesNotExist"), true, ""},
		{"there after all", expressions("app DoesNotExist"), false, ""},
		{"no values", expressions("app In"), false, "values"},
		{"values for Exists", expressions("app Exists a"), false, "values"},
		{"an operator of nodes", expressions("app Gt 1"), false, `"Gt" is not a valid label selector operator`},
		{"a bad value", with(expressions(), "app", "a b"), false, "a b"},
		{"a bad key", expressions("-app Exists"), false, "-app"},
	} {
		got, err := labelselector.Of(c.selector)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
		if err == nil && got.Matches(app) != c.want {
			t.Errorf("%s: %v", c.name, !c.want)
		}
		if labelselector.OrNothing(c.selector).Matches(app) != c.want {
			t.Errorf("%s, or nothing: %v", c.name, !c.want)
		}
	}
}
