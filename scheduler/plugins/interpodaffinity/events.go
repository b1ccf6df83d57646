package interpodaffinity

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// Events are the changes that can help.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeGone |
		framework.PodAssigned | framework.PodGone | framework.PodShrunk | framework.NamespaceLabels
}

// Helps says whether a change can help.
func (*Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	a := pod.Affinity
	switch c.Event {
	case framework.PodAssigned:
		return attracts(a, c.Pod)
	case framework.PodGone:
		return leaves(pod, c)
	case framework.PodShrunk:
		return attracts(a, c.OldPod) != attracts(a, c.Pod) || repels(a, c.OldPod) && !sameTerms(a, c.OldPod, c.Pod)
	case framework.NodeAdded:
		return needs(a, c.Node)
	case framework.NodeLabels, framework.NodeGone:
		return true // It may have held the pods that are in the way, by a label that only they know.
	case framework.NamespaceLabels:
		return pod.Key.Namespace == nameOf(c) || chooses(a, c)
	default:
		return false
	}
}

// attracts says whether a pod may be one that the affinity is about.
func attracts(a *framework.PodAffinity, p *corev1.Pod) bool {
	return a != nil && a.Near != nil && a.Near.MayCount(p)
}

// repels says whether a pod may be one that the anti-affinity is about.
func repels(a *framework.PodAffinity, p *corev1.Pod) bool {
	if a == nil {
		return false
	}
	for i := range a.AntiAffinity {
		if a.AntiAffinity[i].Pods.MayCount(p) {
			return true
		}
	}
	return false
}

// sameTerms says whether the same terms of the anti-affinity are about two states of a pod.
func sameTerms(a *framework.PodAffinity, old, p *corev1.Pod) bool {
	for i := range a.AntiAffinity {
		if q := a.AntiAffinity[i].Pods; q.MayCount(old) != q.MayCount(p) {
			return false
		}
	}
	return true
}

// leaves says whether a pod that went was in the way: by the anti-affinity of either, or since a pod that wants to be
// near to its own kind may go anywhere once the last of them is gone.
func leaves(pod *framework.PodInfo, c *framework.Change) bool {
	a := pod.Affinity
	return repels(a, c.OldPod) || repels(c.OldAffinity(), pod.Pod) || attracts(a, c.OldPod) && attracts(a, pod.Pod)
}

// needs says whether a new node can do for the pod: one that needs others near to it needs a label.
func needs(a *framework.PodAffinity, n *corev1.Node) bool {
	if a == nil || len(a.Affinity) == 0 {
		return true
	}
	for i := range a.Affinity {
		if _, ok := n.GetMetadata().GetLabels()[a.Affinity[i].Key]; ok {
			return true
		}
	}
	return false
}

func nameOf(c *framework.Change) string {
	if c.Namespace != nil {
		return c.Namespace.GetMetadata().GetName()
	}
	return c.OldNamespace.GetMetadata().GetName()
}

// chooses says whether a required term has another opinion of the namespace than before.
func chooses(a *framework.PodAffinity, c *framework.Change) bool {
	if a == nil {
		return false
	}
	name, old, now := nameOf(c), c.OldNamespace.GetMetadata().GetLabels(), c.Namespace.GetMetadata().GetLabels()
	for _, terms := range [...][]framework.PodTerm{a.Affinity, a.AntiAffinity} {
		for i := range terms {
			if q := terms[i].Pods; q.In(name, old) != q.In(name, now) {
				return true
			}
		}
	}
	return false
}
