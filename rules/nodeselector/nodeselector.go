// Package nodeselector reads which nodes a pod chooses by their labels and names, by its node selector and its
// required node affinity, and which can reach a volume. The scheduler places pods and chooses volumes by it, and the
// agent has the last word.
//
// It guarantees the answers of Kubernetes: test/oracle compares them over random pods and nodes. A term that is
// empty, or has a requirement that cannot be read, such as Gt without a number, selects no node. It knows nothing of
// preferences or of taints.
package nodeselector

import corev1 "monoplane.dev/api/core/v1"

// Required is what a pod, or a volume, requires of the labels and the name of its node. It is immutable.
type Required struct {
	labels map[string]string
	// affinity is nil when there is none; without terms it selects nothing.
	affinity terms
}

// anyNode is what pods require that leave the choice to others: most pods, so that they share it.
var anyNode = &Required{}

// OfPod reads what the pod requires.
func OfPod(spec *corev1.PodSpec) *Required {
	labels := spec.GetNodeSelector()
	s := spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	if len(labels) == 0 && s == nil {
		return anyNode
	}
	r := &Required{labels: labels}
	if s != nil {
		r.affinity = readTerms(s)
	}
	return r
}

// Of reads a node selector. Nil selects all nodes.
func Of(s *corev1.NodeSelector) *Required {
	if s == nil {
		return anyNode
	}
	return &Required{affinity: readTerms(s)}
}

// Labels are those of the node selector, all of which a node must have.
func (r *Required) Labels() map[string]string { return r.labels }

// Terms are the alternatives of the node affinity, of which a node must match one; ok is false when there is no
// affinity.
func (r *Required) Terms() (list []Term, ok bool) { return r.affinity, r.affinity != nil }

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

// Names returns the only nodes that can match, nil when they are not named: terms are alternatives, so that every one
// of them must name its nodes; within a term all requirements must hold.
func (r *Required) Names() map[string]struct{} {
	if len(r.affinity) == 0 {
		return nil
	}
	all := map[string]struct{}{}
	for i := range r.affinity {
		names := r.affinity[i].names()
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
func (t *Term) names() map[string]struct{} {
	var names map[string]struct{}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Operator != In {
			continue
		}
		both := map[string]struct{}{}
		for _, v := range f.Values {
			if _, ok := names[v]; ok || names == nil {
				both[v] = struct{}{}
			}
		}
		names = both
	}
	return names
}
