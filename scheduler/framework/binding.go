package framework

import (
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// pickedKey is where a CycleState keeps the node that was picked.
type pickedKey struct{}

// Pick notes the node that was picked, as the decision judged it.
func (c *CycleState) Pick(node *corev1.Node) { c.Write(pickedKey{}, node) }

// Picked returns the node that was picked, as the decision judged it; nil before one was.
func (c *CycleState) Picked() *corev1.Node {
	n, _ := c.Read(pickedKey{}).(*corev1.Node)
	return n
}

// NewBinding returns what a Bind plugin sends to the server: the binding of the pod to the node on the condition that
// both still are as they were judged, by uid and revision. The server answers Conflict when they are not, and what
// happens then is not the plugin's business: it returns the error (spec: SCHED-3).
func NewBinding(state *CycleState, pod *PodInfo, node string) *corev1.Binding {
	b := &corev1.Binding{
		Metadata: &metav1.ObjectMeta{
			Namespace: pod.Key.Namespace, Name: pod.Key.Name, Uid: pod.UID,
			ResourceVersion: pod.Pod.GetMetadata().GetResourceVersion(),
		},
		Target: &corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if m := state.Picked().GetMetadata(); m.GetName() == node {
		b.Target.Uid, b.Target.ResourceVersion = m.GetUid(), m.GetResourceVersion()
	}
	return b
}
