package naive

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// namespaceLabels are those of a namespace, sometimes none.
func (d Dice) namespaceLabels() map[string]string {
	labels := map[string]string{}
	for _, k := range []string{"team", "version"} {
		if d.one(2) {
			labels[k] = pick(d, "1", "2")
		}
	}
	return labels
}

// keepNear gives a pod terms of inter-pod affinity and anti-affinity, each kind once in n times.
func (d Dice) keepNear(p *corev1.Pod, n int) {
	var near corev1.PodAffinity
	var apart corev1.PodAntiAffinity
	if d.one(2 * n) {
		near.RequiredDuringSchedulingIgnoredDuringExecution = d.podTerms()
	}
	if d.one(n) {
		apart.RequiredDuringSchedulingIgnoredDuringExecution = d.podTerms()
	}
	if d.one(n) {
		near.PreferredDuringSchedulingIgnoredDuringExecution = d.weightedTerms()
	}
	if d.one(n) {
		apart.PreferredDuringSchedulingIgnoredDuringExecution = d.weightedTerms()
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	p.Spec.Affinity.PodAffinity, p.Spec.Affinity.PodAntiAffinity = &near, &apart
}

func (d Dice) podTerms() []*corev1.PodAffinityTerm {
	var list []*corev1.PodAffinityTerm
	for range 1 + d.IntN(2) {
		list = append(list, d.podTerm())
	}
	return list
}

func (d Dice) weightedTerms() []*corev1.WeightedPodAffinityTerm {
	var list []*corev1.WeightedPodAffinityTerm
	for _, t := range d.podTerms() {
		list = append(list, &corev1.WeightedPodAffinityTerm{Weight: 1 + d.Int32N(100), PodAffinityTerm: t})
	}
	return list
}

func (d Dice) podTerm() *corev1.PodAffinityTerm {
	t := &corev1.PodAffinityTerm{TopologyKey: pick(d, zoneKey, hostKey, hostKey, "rack"), LabelSelector: d.selector()}
	if d.one(4) {
		t.Namespaces = pick(d, []string{"ns"}, []string{"other"}, []string{"other", "ns"})
	}
	if d.one(4) {
		t.NamespaceSelector = pick(d, &metav1.LabelSelector{},
			&metav1.LabelSelector{MatchLabels: map[string]string{"team": "1"}}, d.selector())
	}
	if d.one(5) {
		t.MatchLabelKeys = []string{pick(d, "version", "gone")}
	}
	if d.one(5) {
		t.MismatchLabelKeys = []string{pick(d, "app", "gone")}
	}
	return t
}
