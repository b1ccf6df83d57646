package framework

import (
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

// PodAffinity is a pod's inter-pod affinity and anti-affinity, made ready.
type PodAffinity struct {
	// Affinity and AntiAffinity are the required terms.
	Affinity, AntiAffinity []PodTerm
	// Preferred are the preferred terms of both kinds.
	Preferred []PodTerm
	// Near selects the pods that all terms of Affinity select; nil when there are none.
	Near *PodQuery
}

// PodTerm is one term.
type PodTerm struct {
	// Key is the node label that makes the domains.
	Key string
	// Pods are those that the term is about.
	Pods *PodQuery
	// Weight is that of a preferred term, negative for anti-affinity; 1 for a required one.
	Weight int64

	text string
}

// Chooses says whether any term is required.
func (a *PodAffinity) Chooses() bool { return a != nil && len(a.Affinity)+len(a.AntiAffinity) > 0 }

// Prefers says whether any term is preferred.
func (a *PodAffinity) Prefers() bool { return a != nil && len(a.Preferred) > 0 }

// affinityOf returns nil for a pod without terms.
func affinityOf(p *corev1.Pod) *PodAffinity {
	near, apart := p.GetSpec().GetAffinity().GetPodAffinity(), p.GetSpec().GetAffinity().GetPodAntiAffinity()
	if near == nil && apart == nil {
		return nil
	}
	var a PodAffinity
	for _, t := range near.GetRequiredDuringSchedulingIgnoredDuringExecution() {
		a.Affinity = append(a.Affinity, newPodTerm(p, t, 1))
	}
	for _, t := range apart.GetRequiredDuringSchedulingIgnoredDuringExecution() {
		a.AntiAffinity = append(a.AntiAffinity, newPodTerm(p, t, 1))
	}
	for _, w := range near.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		a.Preferred = append(a.Preferred, newPodTerm(p, w.GetPodAffinityTerm(), int64(w.GetWeight())))
	}
	for _, w := range apart.GetPreferredDuringSchedulingIgnoredDuringExecution() {
		a.Preferred = append(a.Preferred, newPodTerm(p, w.GetPodAffinityTerm(), -int64(w.GetWeight())))
	}
	if !a.Chooses() && !a.Prefers() {
		return nil
	}
	if len(a.Affinity) > 0 {
		queries := make([]*PodQuery, len(a.Affinity))
		for i := range a.Affinity {
			queries[i] = a.Affinity[i].Pods
		}
		a.Near = allOf(queries)
	}
	return &a
}

func newPodTerm(p *corev1.Pod, t *corev1.PodAffinityTerm, weight int64) PodTerm {
	q := newTermQuery(p.GetMetadata(), t)
	return PodTerm{Key: t.GetTopologyKey(), Pods: q, Weight: weight,
		text: strings.Join([]string{t.GetTopologyKey(), q.text}, " ")}
}
