package fake

import (
	"context"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// podsServer adds Bind to the generic methods.
type podsServer struct {
	corev1.PodsBackend
	server *Server
}

// Bind follows SCHED-3 and DEL-11.
func (p *podsServer) Bind(_ context.Context, req *corev1.BindPodRequest) (*metav1.Status, error) {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.kinds[corev1.PodKind]
	name := req.GetName()
	if name == "" {
		name = req.GetObject().GetMetadata().GetName()
	}
	o, err := b.find(req.GetNamespace(), name)
	if err != nil {
		return nil, err
	}
	pod := object.Clone(o).(*corev1.Pod)
	target, wanted := req.GetObject().GetTarget(), req.GetObject().GetMetadata()
	node, err := s.kinds[corev1.NodeKind].find("", target.GetName())
	if err != nil {
		return nil, err
	}
	if err := precondition(corev1.PodKind, pod.GetMetadata(), wanted.GetUid(), wanted.GetResourceVersion()); err != nil {
		return nil, err
	}
	if err := precondition(corev1.NodeKind, node.GetMetadata(), target.GetUid(), target.GetResourceVersion()); err != nil {
		return nil, err
	}
	switch {
	case pod.GetMetadata().GetDeletionTimestamp() != nil:
		return nil, apierrors.NewConflict(corev1.PodKind, name, "the pod is being deleted")
	case pod.GetSpec().GetNodeName() != "":
		return nil, apierrors.NewConflict(corev1.PodKind, name, "pod %s is already assigned to node %q", name, pod.GetSpec().GetNodeName())
	case len(pod.GetSpec().GetSchedulingGates()) > 0:
		return nil, apierrors.NewConflict(corev1.PodKind, name, "the pod has scheduling gates")
	}
	if pod.Spec == nil {
		pod.Spec = &corev1.PodSpec{}
	}
	if pod.Status == nil {
		pod.Status = &corev1.PodStatus{}
	}
	pod.Spec.NodeName, pod.Status.NominatedNodeName = target.GetName(), ""
	scheduled := &corev1.PodCondition{Type: "PodScheduled", Status: "True", LastTransitionTime: value.Time(now())}
	kept := []*corev1.PodCondition{scheduled}
	for _, c := range pod.GetStatus().GetConditions() {
		if c.GetType() != scheduled.GetType() {
			kept = append(kept, c)
		}
	}
	pod.Status.Conditions = kept
	b.store(key{req.GetNamespace(), name}, pod)
	return &metav1.Status{Status: "Success", Code: 201}, nil
}

// precondition compares an object with the uid and the revision that a binding asks for; empty ones ask for nothing.
func precondition(kind *object.Kind, m *metav1.ObjectMeta, uid, revision string) error {
	switch {
	case uid != "" && uid != m.GetUid():
		return apierrors.NewConflict(kind, m.GetName(), "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, m.GetUid())
	case revision != "" && revision != m.GetResourceVersion():
		return apierrors.NewConflict(kind, m.GetName(),
			"Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", revision, m.GetResourceVersion())
	}
	return nil
}
