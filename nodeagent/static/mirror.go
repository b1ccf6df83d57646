package static

import (
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/staticpod"
)

// Step is what is to be done about the mirror of a static pod.
type Step uint8

// The steps.
const (
	// Nothing is to be done.
	Nothing Step = iota
	// Create makes the mirror.
	Create
	// Write writes the pod's status to the mirror.
	Write
	// Delete removes the mirror, at once: it is only a picture, and another may follow.
	Delete
	// Blocked waits: a pod that is no mirror has the name.
	Blocked
)

// NextStep decides about a mirror. Pod is the static pod as it is on its node, nil when there is none. Have is the pod
// that the API has under that name on this node, nil for none. Told is the status that was last written to have.
//
//	no mirror ──► Create ──► mirror of this pod ──► Write, when the status is another
//	    ▲                         │ being deleted, of another pod, or the pod is gone
//	    └────────── Delete ◄──────┘
func NextStep(pod, have *corev1.Pod, told *corev1.PodStatus) Step {
	switch {
	case have == nil && pod == nil:
		return Nothing
	case have == nil:
		return Create
	case !staticpod.IsMirror(have.GetMetadata()):
		return Blocked
	case pod == nil, have.GetMetadata().GetDeletionTimestamp() != nil,
		have.GetMetadata().GetAnnotations()[staticpod.Mirror] != pod.GetMetadata().GetUid():
		return Delete
	case pod.GetStatus() != told:
		return Write
	default:
		return Nothing
	}
}

// NewMirror returns the mirror of a static pod, which belongs to its node.
func NewMirror(pod *corev1.Pod, node *metav1.ObjectMeta) *corev1.Pod {
	given := pod.GetMetadata()
	meta := &metav1.ObjectMeta{
		Name: given.GetName(), Namespace: given.GetNamespace(), Labels: given.GetLabels(),
		Annotations: make(map[string]string, len(given.GetAnnotations())+1),
		OwnerReferences: []*metav1.OwnerReference{{
			ApiVersion: corev1.NodeKind.APIVersion(), Kind: corev1.NodeKind.Kind, Name: node.GetName(), Uid: node.GetUid(),
			Controller: proto.Bool(true),
		}},
	}
	for k, v := range given.GetAnnotations() {
		meta.Annotations[k] = v
	}
	meta.Annotations[staticpod.Mirror] = given.GetUid()
	return &corev1.Pod{Metadata: meta, Spec: pod.GetSpec().Clone()}
}
