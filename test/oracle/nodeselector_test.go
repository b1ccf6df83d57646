package oracle

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/nodeselector"
)

// choices are requirements, some of which cannot be read. Values that no label can have are left out: the server lets
// none pass.
func choices(r *rand.Rand, keys []string) []v1.NodeSelectorRequirement {
	var all []v1.NodeSelectorRequirement
	for range r.IntN(3) {
		q := v1.NodeSelectorRequirement{
			Key: pick(r, keys), Operator: v1.NodeSelectorOperator(pick(r, []string{"In", "In", "NotIn", "Exists",
				"DoesNotExist", "Gt", "Lt", "Like", ""})),
		}
		for range r.IntN(3) {
			q.Values = append(q.Values, pick(r, []string{"a", "b", "1", "2", "3", "n1", "n2", ""}))
		}
		all = append(all, q)
	}
	return all
}

// spec: SCHED-4, LIFE-12
func TestPodsChooseTheSameNodes(t *testing.T) {
	r := random(t)
	matched := 0
	for range *count {
		k := minimal()
		if r.IntN(3) == 0 {
			k.Spec.NodeSelector = map[string]string{pick(r, []string{"x", "y"}): pick(r, []string{"a", "1", ""})}
		}
		if r.IntN(6) > 0 {
			s := &v1.NodeSelector{}
			for range r.IntN(4) {
				s.NodeSelectorTerms = append(s.NodeSelectorTerms, v1.NodeSelectorTerm{
					MatchExpressions: choices(r, []string{"x", "y", "z"}), MatchFields: choices(r, []string{"metadata.name"}),
				})
			}
			k.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
		}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: pick(r, []string{"n1", "n2"}), Labels: map[string]string{}}}
		for _, key := range []string{"x", "y", "z"} {
			if r.IntN(3) > 0 {
				node.Labels[key] = pick(r, []string{"a", "b", "1", "2", "3", ""})
			}
		}
		n, err := ours(node, &corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		want, _ := nodeaffinity.GetRequiredNodeAffinity(k).Match(node) // what cannot be read does not match
		if got := nodeselector.OfPod(ourPod(t, k).Spec).Matches(n); got != want {
			t.Fatalf("pod %v\nnode %s %v\nmatches: %v for Kubernetes, %v for Monoplane", k.Spec, node.Name, node.Labels, want,
				got)
		}
		if want {
			matched++
		}
	}
	if matched < *count/20 {
		t.Errorf("only %d of %d matched", matched, *count)
	}
}
