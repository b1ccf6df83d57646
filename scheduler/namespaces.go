package scheduler

import (
	"maps"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

func (s *Scheduler) namespaceAdded(n *corev1.Namespace) { s.namespace(nil, n) }

func (s *Scheduler) namespaceUpdated(old, n *corev1.Namespace) { s.namespace(old, n) }

func (s *Scheduler) namespaceDeleted(n *corev1.Namespace) { s.namespace(n, nil) }

// namespace takes a newer state of a namespace, whose labels terms of inter-pod affinity can choose; old is nil when
// it is new, n when it is gone.
func (s *Scheduler) namespace(old, n *corev1.Namespace) {
	labels := n.GetMetadata().GetLabels()
	if maps.Equal(old.GetMetadata().GetLabels(), labels) {
		return
	}
	name := n.GetMetadata().GetName()
	if n == nil {
		name = old.GetMetadata().GetName()
	}
	s.state.SetNamespace(name, labels)
	s.queue.Change(framework.Change{Event: framework.NamespaceLabels, Namespace: n, OldNamespace: old})
}
