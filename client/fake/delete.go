package fake

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/phase"
)

// Delete follows DEL-1 to DEL-6 for pods; other kinds go at once unless finalizers hold them.
func (b *backend) Delete(_ context.Context, req *metav1.DeleteRequest) (object.Object, error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	o, err := b.find(req.GetNamespace(), req.GetName())
	if err != nil {
		return nil, err
	}
	m := o.GetMetadata()
	if uid := req.GetOptions().GetPreconditions().GetUid(); uid != "" && uid != m.GetUid() {
		return nil, apierrors.NewConflict(b.kind, m.GetName(),
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated",
			uid, m.GetUid())
	}
	grace := req.GracePeriodSeconds
	if grace == nil && req.GetOptions() != nil {
		grace = req.GetOptions().GracePeriodSeconds
	}
	seconds := int64(0)
	held := len(m.GetFinalizers()) > 0
	switch o := o.(type) {
	case *corev1.Pod:
		seconds = podGrace(o, grace)
	case *corev1.Namespace:
		held = held || len(o.GetSpec().GetFinalizers()) > 0
	}
	k := key{m.GetNamespace(), m.GetName()}
	if seconds == 0 && !held {
		return b.remove(k, o), nil
	}
	if m.GetDeletionTimestamp() != nil && seconds >= m.GetDeletionGracePeriodSeconds() {
		return o, nil
	}
	n := object.Clone(o)
	n.GetMetadata().DeletionTimestamp = value.Time(now().Add(time.Duration(seconds) * time.Second))
	n.GetMetadata().DeletionGracePeriodSeconds = &seconds
	if ns, ok := n.(*corev1.Namespace); ok {
		if ns.Status == nil {
			ns.Status = &corev1.NamespaceStatus{}
		}
		ns.Status.Phase = "Terminating"
	}
	return b.store(k, n), nil
}

// podGrace returns the grace that counts for a pod; 0 removes it.
func podGrace(p *corev1.Pod, asked *int64) int64 {
	first := p.GetMetadata().GetDeletionTimestamp() == nil
	switch {
	case asked != nil && *asked == 0:
		return 0
	case first && (p.GetSpec().GetNodeName() == "" || phase.Terminal(p)):
		return 0
	case asked != nil:
		return max(*asked, 1)
	case p.GetSpec().TerminationGracePeriodSeconds != nil:
		return max(p.GetSpec().GetTerminationGracePeriodSeconds(), 1)
	default:
		return 30
	}
}
