// Package plan decides on which nodes a DaemonSet has pods, which of them are made and deleted now, and what its
// status says. It is pure: no clock, no client. test/oracle compares it with Kubernetes' own, over whole histories.
//
//	               no pod there ──► Manage makes one
//	               ended        ──► Manage deletes it, in a back-off per node
//	node runs one: older        ──► Roll deletes it (maxUnavailable), or makes a new one beside it (maxSurge)
//	               new, beside an old one ──► Manage deletes the old one as soon as the new one is available
//	node runs none any more     ──► Manage deletes its pods, unless they may stay
package plan

import (
	"slices"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/nodeselector"
	"monoplane.dev/rules/taints"
)

// Place is where the pods of a DaemonSet go. Use PlaceOf.
type Place struct {
	node        string
	requires    *nodeselector.Required
	tolerations []*corev1.Toleration
}

// PlaceOf reads the template of a DaemonSet.
func PlaceOf(d *appsv1.DaemonSet) *Place {
	spec := d.GetSpec().GetTemplate().GetSpec()
	return &Place{node: spec.GetNodeName(), requires: nodeselector.OfPod(spec), tolerations: Tolerations(spec)}
}

// Judge says whether a node is to have a pod, and whether one that is there may stay: a taint of effect NoSchedule
// alone drives nobody out.
func (p *Place) Judge(n *corev1.Node) (run, stay bool) {
	if p.node != "" && p.node != n.GetMetadata().GetName() || !p.requires.Matches(n) {
		return false, false
	}
	all := n.GetSpec().GetTaints()
	if taints.Untolerated(all, p.tolerations) == nil {
		return true, true
	}
	return false, !slices.ContainsFunc(all, func(t *corev1.Taint) bool {
		return t.GetEffect() == taints.NoExecute && !taints.Tolerated(p.tolerations, t)
	})
}

// Target returns the node for which a pod was made: the one that it is bound to, or the one that its affinity names.
// ok is false for a pod of which that cannot be said.
func Target(p *corev1.Pod) (node string, ok bool) {
	spec := p.GetSpec()
	if spec.GetNodeName() != "" {
		return spec.GetNodeName(), true
	}
	required := spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	for _, term := range required.GetNodeSelectorTerms() {
		for _, f := range term.GetMatchFields() {
			if f.GetKey() == nodeselector.NameField && f.GetOperator() == nodeselector.In {
				if len(f.GetValues()) != 1 {
					return "", false
				}
				return f.GetValues()[0], true
			}
		}
	}
	return "", false
}
