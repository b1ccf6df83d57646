package pod

import (
	"context"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/scheduling/priority"

	corev1 "monoplane.dev/api/core/v1"
)

// prioritize gives a new pod the priority of its class (PRIO-2).
func (p *Pods) prioritize(ctx context.Context, o *corev1.Pod) error {
	class, err := priority.Classes{Store: p.deps.Store}.Of(ctx, o.Spec.PriorityClassName)
	if apierrors.Is(err, apierrors.NotFound) {
		return priority.Unknown(o)
	}
	if err != nil {
		return err
	}
	return priority.Set(o, class)
}
