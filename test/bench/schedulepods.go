package main

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// podKind is a kind of pods to place, with what is there before them.
type podKind struct {
	name string
	// pods is how many are placed, target how many a second they should be with 1 000 nodes; 0 for no target.
	pods, target int
	// change makes pods from plain ones; nil for plain.
	change func(*corev1.PodSpec)
	// there are pods that are created first, changed by before: in a quick run fewer, unless there is one for each node.
	// Those that wait never get a node.
	there   int
	perNode bool
	waits   bool
	before  func(*corev1.Pod)
	// grpc creates over gRPC and TLS in place of REST. churn deletes one of those that were there for every second one.
	grpc, churn bool
}

func (k podKind) shape(p *corev1.Pod) {
	if k.change != nil {
		k.change(p.Spec)
	}
}

const hostname = "kubernetes.io/hostname"

// nodeObject is a node of a cluster in ten zones.
func nodeObject(i int) *corev1.Node {
	room := map[string]*metav1.Quantity{
		"cpu": {String_: "64"}, "memory": {String_: "256Gi"}, "pods": {String_: "110"},
		"ephemeral-storage": {String_: "1Ti"},
	}
	name := fmt.Sprint("node-", i)
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{hostname: name, "zone": fmt.Sprint("z", i%10)}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Allocatable: room, Capacity: room},
	}
}

// podKinds are the rows of one cluster.
func podKinds() []podKind {
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "bench"}}
	spread := func(key, otherwise string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{
				{MaxSkew: 5, TopologyKey: key, WhenUnsatisfiable: otherwise, LabelSelector: ours},
			}
		}
	}
	affine := func(a *corev1.Affinity) func(*corev1.PodSpec) { return func(s *corev1.PodSpec) { s.Affinity = a } }
	term := func(key string) *corev1.PodAffinityTerm {
		return &corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: ours}
	}
	weighted := []*corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(hostname)}}
	required := []*corev1.NodeSelectorTerm{{MatchExpressions: []*corev1.NodeSelectorRequirement{
		{Key: "zone", Operator: "In", Values: []string{"z1", "z2", "z3"}},
	}}}
	return []podKind{
		{name: "plain", pods: 3000, target: 2000},
		{name: "hard spread", pods: 2000, target: 1800, change: spread("zone", "DoNotSchedule")},
		{name: "soft spread", pods: 2000, change: spread("zone", "ScheduleAnyway")},
		{name: "required affinity", pods: 900, target: 1400,
			change: affine(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{term("zone")},
			}})},
		{name: "required anti-affinity", pods: 900, target: 1600,
			change: affine(&corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{term(hostname)},
			}})},
		{name: "preferred affinity", pods: 2000, change: affine(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: weighted,
		}})},
		{name: "preferred anti-affinity", pods: 2000,
			change: affine(&corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: weighted,
			}})},
		{name: "node affinity", pods: 2000, change: affine(&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: required},
		}})},
		{name: "mixed churn", pods: 2000, there: 1000, churn: true},
		{name: "10 000 unschedulable wait", pods: 2000, there: 10_000, waits: true,
			before: func(p *corev1.Pod) { ask(p.Spec, "1000") }},
		{name: "10 000 gated wait", pods: 2000, there: 10_000, waits: true, before: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "example.com/later"}}
		}},
	}
}

// preemption fills each node with one pod of low priority, which one of high priority needs the place of.
func preemption(cpu string, nodes int) podKind {
	return podKind{
		name: "preemption", pods: 500, there: nodes, perNode: true,
		before: func(p *corev1.Pod) { p.Spec.PriorityClassName = "low"; ask(p.Spec, cpu) },
		change: func(s *corev1.PodSpec) { s.PriorityClassName = "high"; ask(s, cpu) },
	}
}

func ask(s *corev1.PodSpec, cpu string) {
	s.Containers[0].Resources.Requests["cpu"] = &metav1.Quantity{String_: cpu}
}

// ignoreGone is for deletions of what may be gone.
func ignoreGone(err error) error {
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	return err
}
