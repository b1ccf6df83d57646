package naive

import (
	"slices"
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
)

func affinity(_ *Cluster, pod *corev1.Pod, node *corev1.Node) (bool, []string) {
	if !selects(pod, node) {
		return true, []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	return false, nil
}

// selects says whether the pod's node selector and required node affinity choose the node.
func selects(pod *corev1.Pod, node *corev1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if got, ok := node.Metadata.Labels[k]; !ok || got != v {
			return false
		}
	}
	required := pod.Spec.Affinity.GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	if required == nil {
		return true
	}
	return slices.ContainsFunc(required.NodeSelectorTerms, func(t *corev1.NodeSelectorTerm) bool { return term(t, node) })
}

// term: all tests of a term must pass; a term without any chooses nothing.
func term(t *corev1.NodeSelectorTerm, node *corev1.Node) bool {
	tests := 0
	for _, r := range t.GetMatchExpressions() {
		got, has := node.Metadata.Labels[r.Key]
		if !test(r.Operator, r.Values, got, has) {
			return false
		}
		tests++
	}
	for _, r := range t.GetMatchFields() {
		if r.Key != "metadata.name" || !test(r.Operator, r.Values, node.Metadata.Name, true) {
			return false
		}
		tests++
	}
	return tests > 0
}

// test is one test of a label or field, also for selectors of pods.
func test(operator string, values []string, got string, has bool) bool {
	in := has && slices.Contains(values, got)
	switch operator {
	case "In":
		return in
	case "NotIn":
		return !in
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "Gt", "Lt":
		a, err := strconv.ParseInt(got, 10, 64)
		if !has || err != nil {
			return false
		}
		b, err := strconv.ParseInt(values[0], 10, 64)
		return err == nil && (operator == "Gt" && a > b || operator == "Lt" && a < b)
	default:
		panic("no such operator: " + operator)
	}
}

// affinityScore adds up the weights of the preferences that the node meets.
func affinityScore(_ *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	preferred := pod.Spec.Affinity.GetNodeAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution()
	if len(preferred) == 0 {
		return nil
	}
	scores := make([]int64, len(fit))
	for i, node := range fit {
		for _, p := range preferred {
			if term(p.Preference, node) {
				scores[i] += int64(p.Weight)
			}
		}
	}
	return normalise(scores, false)
}
