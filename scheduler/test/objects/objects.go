// Package objects makes nodes and pods for tests of the scheduler, and counts what they were about.
package objects

import (
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Quantities reads amounts such as "cpu=1".
func Quantities(kv ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, s := range kv {
		k, v, _ := strings.Cut(s, "=")
		m[k] = &metav1.Quantity{String_: v}
	}
	return m
}

// Node returns a node with that much to allocate, or with plenty.
func Node(name string, allocatable ...string) *corev1.Node {
	if len(allocatable) == 0 {
		allocatable = []string{"cpu=4", "memory=8Gi", "pods=110"}
	}
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Allocatable: Quantities(allocatable...)},
	}
}

// Pod returns a pod in namespace ns that the default scheduler is to place.
func Pod(name string, requests ...string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: &corev1.PodSpec{
			SchedulerName: "default-scheduler",
			Containers: []*corev1.Container{
				{Name: "c", Image: "host", Resources: &corev1.ResourceRequirements{Requests: Quantities(requests...)}},
			},
		},
		Status: &corev1.PodStatus{Phase: "Pending"},
	}
}

// NodeAffinity returns the node affinity of a pod, which is made when there is none.
func NodeAffinity(p *corev1.Pod) *corev1.NodeAffinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return p.Spec.Affinity.NodeAffinity
}

// Use has a pod use a claim.
func Use(p *corev1.Pod, claim string) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{Name: "v-" + claim, VolumeSource: &corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	return p
}

// AddPodTerm gives the pod a term of one kind, "KEY:K=V".
func AddPodTerm(p *corev1.Pod, kind, term string) {
	key, label, _ := strings.Cut(term, ":")
	k, v, _ := strings.Cut(label, "=")
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	t := &corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selector}
	weighted := &corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: t}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	a := p.Spec.Affinity
	if a.PodAffinity == nil {
		a.PodAffinity, a.PodAntiAffinity = &corev1.PodAffinity{}, &corev1.PodAntiAffinity{}
	}
	near, apart := a.PodAffinity, a.PodAntiAffinity
	switch kind {
	case "near":
		l := &near.RequiredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, t)
	case "apart":
		l := &apart.RequiredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, t)
	case "prefer-near":
		l := &near.PreferredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, weighted)
	case "prefer-apart":
		l := &apart.PreferredDuringSchedulingIgnoredDuringExecution
		*l = append(*l, weighted)
	}
}

// Reason returns the condition PodScheduled as text.
func Reason(p *corev1.Pod) string {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" && c.GetStatus() == "False" {
			return c.GetReason() + ": " + c.GetMessage()
		}
	}
	return ""
}
