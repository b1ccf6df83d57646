package nodeaffinity

import corev1 "monoplane.dev/api/core/v1"

// Required is what a pod requires of the labels and the name of its node: its node selector and its required node affinity.
// It is immutable.
type Required struct {
	labels   map[string]string
	affinity *terms
}

// anyNode is what pods require that leave the choice to others: most pods, so that they share it.
var anyNode = &Required{}

// NewRequired reads what the pod requires.
func NewRequired(spec *corev1.PodSpec) *Required {
	labels, s := spec.GetNodeSelector(), spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	if len(labels) == 0 && s == nil {
		return anyNode
	}
	r := &Required{labels: labels}
	if s != nil {
		r.affinity = readTerms(s)
	}
	return r
}

// OfVolume reads which nodes can reach a volume; nil when all can.
func OfVolume(v *corev1.PersistentVolume) *Required {
	s := v.GetSpec().GetNodeAffinity().GetRequired()
	if s == nil {
		return nil
	}
	return &Required{affinity: readTerms(s)}
}

// Chooses says whether the pod requires anything.
func (r *Required) Chooses() bool { return r != anyNode }

// Matches says whether the node has all labels of the node selector and matches the required node affinity.
func (r *Required) Matches(node *corev1.Node) bool {
	if len(r.labels) > 0 {
		labels := node.GetMetadata().GetLabels()
		for k, v := range r.labels {
			if got, ok := labels[k]; !ok || got != v {
				return false
			}
		}
	}
	return r.affinity == nil || r.affinity.match(node)
}

// names returns the only nodes that can match, nil when they are not named: terms are alternatives, so that every one of them
// must name its nodes; within a term all requirements must hold.
func (r *Required) names() map[string]struct{} {
	if r.affinity == nil || len(r.affinity.list) == 0 {
		return nil
	}
	all := map[string]struct{}{}
	for i := range r.affinity.list {
		names := r.affinity.list[i].names()
		if names == nil {
			return nil
		}
		for n := range names {
			all[n] = struct{}{}
		}
	}
	return all
}

// names returns the nodes that a term names, nil when it names none.
func (t *term) names() map[string]struct{} {
	var names map[string]struct{}
	for i := range t.fields {
		f := &t.fields[i]
		if f.operator != in {
			continue
		}
		both := map[string]struct{}{}
		for _, v := range f.values {
			if _, ok := names[v]; ok || names == nil {
				both[v] = struct{}{}
			}
		}
		names = both
	}
	return names
}
