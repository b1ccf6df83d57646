package plan

import (
	"maps"
	"strconv"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/rules/taints"
)

// The labels by which pods tell of which template they are made, and the annotation in which the server counts the
// templates of a DaemonSet.
const (
	// HashLabel has the hash of the ControllerRevision.
	HashLabel = "controller-revision-hash"
	// GenerationLabel has the count of templates, for clients of Kubernetes' first versions.
	GenerationLabel = "pod-template-generation"
	// Generation is the annotation of the DaemonSet.
	Generation = "deprecated.daemonset.template.generation"
)

// tolerated are the taints under which daemons work on: they are what others need of a node that is in trouble.
var tolerated = []*corev1.Toleration{
	always(taints.NotReady, taints.NoExecute), always(taints.Unreachable, taints.NoExecute),
	always(taints.DiskPressure, taints.NoSchedule), always(taints.MemoryPressure, taints.NoSchedule),
	always(taints.PIDPressure, taints.NoSchedule), always(taints.Unschedulable, taints.NoSchedule),
}

// networkless is tolerated by daemons in the network of their node: they may be what makes that of pods.
var networkless = always(taints.NetworkUnavailable, taints.NoSchedule)

func always(key, effect string) *corev1.Toleration {
	return &corev1.Toleration{Key: key, Operator: "Exists", Effect: effect}
}

// Tolerations returns those of the pods that are made of a template: its own, and those of all daemons in the place of
// the ones that say the same for a time.
func Tolerations(spec *corev1.PodSpec) []*corev1.Toleration {
	all := append([]*corev1.Toleration(nil), spec.GetTolerations()...)
	more := tolerated
	if spec.GetHostNetwork() {
		more = append(more[:len(more):len(more)], networkless)
	}
	for _, t := range more {
		found := false
		for i, own := range all {
			if own.GetKey() == t.GetKey() && own.GetEffect() == t.GetEffect() && own.GetOperator() == t.GetOperator() &&
				own.GetValue() == t.GetValue() {
				all[i], found = t, true
			}
		}
		if !found {
			all = append(all, t)
		}
	}
	return all
}

// Template returns what the pod of a node is made of. Hash is that of the newest revision.
func Template(d *appsv1.DaemonSet, node, hash string) *corev1.PodTemplateSpec {
	t := d.GetSpec().GetTemplate()
	set := maps.Clone(t.GetMetadata().GetLabels())
	if set == nil {
		set = map[string]string{}
	}
	if n, ok := generation(d); ok {
		set[GenerationLabel] = n
	}
	set[HashLabel] = hash
	m, spec := &metav1.ObjectMeta{}, &corev1.PodSpec{}
	if t.GetMetadata() != nil {
		m = t.GetMetadata().Shallow()
	}
	if t.GetSpec() != nil {
		spec = t.GetSpec().Shallow()
	}
	m.Labels, spec.Tolerations, spec.Affinity = set, Tolerations(spec), onto(spec.GetAffinity(), node)
	return &corev1.PodTemplateSpec{Metadata: m, Spec: spec}
}

// onto returns an affinity that requires a node, and prefers and avoids pods as a template does. What the template
// requires of nodes has been asked before.
func onto(a *corev1.Affinity, node string) *corev1.Affinity {
	out, nodes := &corev1.Affinity{}, &corev1.NodeAffinity{}
	if a != nil {
		out = a.Shallow()
	}
	if a.GetNodeAffinity() != nil {
		nodes = a.GetNodeAffinity().Shallow()
	}
	nodes.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchFields: []*corev1.NodeSelectorRequirement{
			{Key: nodeselector.NameField, Operator: nodeselector.In, Values: []string{node}},
		}}},
	}
	out.NodeAffinity = nodes
	return out
}

// generation returns the count of a DaemonSet's templates as a text; ok is false when there is none to be read.
func generation(d *appsv1.DaemonSet) (n string, ok bool) {
	count, err := strconv.ParseInt(d.GetMetadata().GetAnnotations()[Generation], 10, 64)
	return strconv.FormatInt(count, 10), err == nil
}
