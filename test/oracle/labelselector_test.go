package oracle

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	ourmeta "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/labelselector"
)

// A selector selects the same labels, is written the same way, and has the same faults in the same words.
//
// spec: SPREAD-2
func TestSelectorsSelectTheSame(t *testing.T) {
	r := random(t)
	keys, values := []string{"x", "y", "example.com/z"}, []string{"a", "b", "1", ""}
	faults, selected := 0, 0
	for range *count {
		var theirs *metav1.LabelSelector
		var ours *ourmeta.LabelSelector
		if r.IntN(12) > 0 {
			theirs, ours = &metav1.LabelSelector{}, &ourmeta.LabelSelector{}
			if r.IntN(3) == 0 { // one, since either of two faults could be named
				k, v := pick(r, append(keys, "-")), pick(r, append(values, "a b"))
				theirs.MatchLabels, ours.MatchLabels = map[string]string{k: v}, map[string]string{k: v}
			}
			for range r.IntN(3) {
				key := pick(r, keys)
				op := pick(r, []string{"In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", ""})
				var list []string
				for range r.IntN(3) {
					list = append(list, pick(r, values))
				}
				theirs.MatchExpressions = append(theirs.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: key, Operator: metav1.LabelSelectorOperator(op), Values: list,
				})
				ours.MatchExpressions = append(ours.MatchExpressions, &ourmeta.LabelSelectorRequirement{
					Key: key, Operator: op, Values: list,
				})
			}
		}
		set := labels.Set{}
		for _, k := range keys {
			if r.IntN(3) > 0 {
				set[k] = pick(r, values)
			}
		}
		want, wantErr := metav1.LabelSelectorAsSelector(theirs)
		got, err := labelselector.Of(ours)
		if wantErr != nil {
			faults++
			if err == nil || err.Error() != wantErr.Error() {
				t.Fatalf("%v\nfault %v for Kubernetes, %v for Monoplane", theirs, wantErr, err)
			}
			if labelselector.OrNothing(ours).Matches(set) {
				t.Fatalf("%v cannot be read, and selects %v", theirs, set)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%v\nis fine for Kubernetes, and for Monoplane %v", theirs, err)
		}
		if got.Matches(set) != want.Matches(set) || got.String() != want.String() || got.Empty() != want.Empty() {
			t.Fatalf("%v and %v\nis %q (%v) for Kubernetes, %q (%v) for Monoplane",
				theirs, set, want, want.Matches(set), got, got.Matches(set))
		}
		if got.Matches(set) {
			selected++
		}
	}
	if faults < *count/20 || selected < *count/20 {
		t.Errorf("of %d, %d could not be read and %d selected", *count, faults, selected)
	}
}
