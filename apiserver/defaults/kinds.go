package defaults

import (
	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// LabelNamespaceName is the label by which a namespace can be selected by its name.
const LabelNamespaceName = "kubernetes.io/metadata.name"

// FinalizerNamespace is what holds a namespace until its contents are gone (NS-1).
const FinalizerNamespace = "kubernetes"

// Namespace fills in a namespace; call it once its name is known, on create and on update.
func Namespace(n *corev1.Namespace) {
	if n.Metadata == nil {
		n.Metadata = &metav1.ObjectMeta{}
	}
	if n.Metadata.Name != "" {
		if n.Metadata.Labels == nil {
			n.Metadata.Labels = map[string]string{}
		}
		n.Metadata.Labels[LabelNamespaceName] = n.Metadata.Name
	}
	if n.Spec == nil {
		n.Spec = &corev1.NamespaceSpec{}
	}
	if n.Status == nil {
		n.Status = &corev1.NamespaceStatus{}
	}
	set(&n.Status.Phase, "Active")
}

// NewNamespace is Namespace plus what creation adds: the finalizer and a fresh status.
func NewNamespace(n *corev1.Namespace) {
	n.Status = nil
	Namespace(n)
	for _, f := range n.Spec.Finalizers {
		if f == FinalizerNamespace {
			return
		}
	}
	n.Spec.Finalizers = append(n.Spec.Finalizers, FinalizerNamespace)
}

// Node fills in a node; call it on create, on update and on a status update.
func Node(n *corev1.Node) {
	if n.Metadata == nil {
		n.Metadata = &metav1.ObjectMeta{}
	}
	if n.Spec == nil {
		n.Spec = &corev1.NodeSpec{}
	}
	if n.Status == nil {
		n.Status = &corev1.NodeStatus{}
	}
	roundAll(n.Status.Capacity)
	roundAll(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = make(map[string]*metav1.Quantity, len(n.Status.Capacity))
		for name, q := range n.Status.Capacity {
			n.Status.Allocatable[name] = clone(q)
		}
	}
	switch s := n.Spec; {
	case s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR):
		s.PodCIDRs = []string{s.PodCIDR}
	case s.PodCIDR == "" && len(s.PodCIDRs) > 0:
		s.PodCIDR = s.PodCIDRs[0]
	}
}

// ConfigMap fills in a ConfigMap.
func ConfigMap(c *corev1.ConfigMap) {
	if c.Metadata == nil {
		c.Metadata = &metav1.ObjectMeta{}
	}
}

// ServiceAccount fills in a service account.
func ServiceAccount(s *corev1.ServiceAccount) {
	if s.Metadata == nil {
		s.Metadata = &metav1.ObjectMeta{}
	}
}

// Lease fills in a lease.
func Lease(l *coordinationv1.Lease) {
	if l.Metadata == nil {
		l.Metadata = &metav1.ObjectMeta{}
	}
	if l.Spec == nil {
		l.Spec = &coordinationv1.LeaseSpec{}
	}
}

// Event fills in an event of core/v1.
func Event(e *corev1.Event) {
	if e.Metadata == nil {
		e.Metadata = &metav1.ObjectMeta{}
	}
	if e.InvolvedObject == nil {
		e.InvolvedObject = &corev1.ObjectReference{}
	}
	if e.Source == nil {
		e.Source = &corev1.EventSource{}
	}
}
