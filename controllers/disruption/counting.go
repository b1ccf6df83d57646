package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/disruption/count"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/labelselector"
)

const (
	// manager is what the status is written as.
	manager = "disruption-controller"
	// counting is what the controller is doing when it records an event.
	counting = "CountPods"
	// retry is how long a budget that could not be counted waits for the next try, unless a pod changes before.
	retry = 30 * time.Second
)

// count brings the status of one budget up to date.
func (c *Controller) count(ctx context.Context, k cache.Key) (time.Duration, error) {
	b, ok := c.budgets.Get(k.Namespace, k.Name)
	if !ok {
		return 0, nil
	}
	now := time.Now()
	pods := c.selected(b)
	scale, unmanaged, err := int32(0), []string(nil), error(nil)
	if count.ByScale(b) {
		// What cannot be told is said of the same pod each time.
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
		})
		scale, unmanaged, err = c.scales.of(ctx, pods)
	}
	var r count.Result
	if err == nil {
		r, err = count.Of(b, pods, scale, now)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		failed := b.GetStatus().Shallow()
		disruption.Fail(failed, err.Error(), now)
		if changed, err := c.write(ctx, b, failed); !changed || err != nil {
			return retry, err
		}
		c.events.Event(b, record.Warning, "CalculateExpectedPodCountFailed", counting,
			"Failed to calculate the number of expected pods: "+err.Error())
		return retry, nil
	}
	changed, err := c.write(ctx, b, r.Status)
	if err != nil {
		return 0, err
	}
	for _, p := range r.Overdue {
		c.events.Event(p, record.Warning, "NotDeleted", counting, fmt.Sprintf(
			"Pod was expected by PDB %s/%s to be deleted but it wasn't", k.Namespace, k.Name))
	}
	if changed {
		c.tell(b, pods, unmanaged)
	}
	if r.Again.IsZero() {
		return 0, nil
	}
	return max(r.Again.Sub(now), 0) + time.Second, nil // times are whole seconds
}

// tell records what the owner of a budget should know about the pods that it selects.
func (c *Controller) tell(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, unmanaged []string) {
	if len(pods) == 0 {
		c.events.Event(b, record.Normal, "NoPods", counting, "No matching pods found")
	}
	if len(unmanaged) > 0 {
		c.events.Event(b, record.Warning, "UnmanagedPods", counting, fmt.Sprintf("%d of the %d selected pods have no "+
			"controller, such as %s: they do not count for a percentage or for maxUnavailable. A number in "+
			"spec.minAvailable counts them", len(unmanaged), len(pods), unmanaged[0]))
	}
}

// selected returns the pods that a budget is about.
func (c *Controller) selected(b *policyv1.PodDisruptionBudget) []*corev1.Pod {
	selector := labelselector.OrNothing(b.GetSpec().GetSelector())
	return slices.DeleteFunc(c.pods.ByIndex(controller.ByNamespace, b.GetMetadata().GetNamespace()),
		func(p *corev1.Pod) bool { return !selector.Matches(labels.Set(p.GetMetadata().GetLabels())) })
}

// write stores a status of b, unless it has it, and waits until the cache has it, too. It fails with a Conflict when b
// has changed: it may have been taken from.
func (c *Controller) write(
	ctx context.Context, b *policyv1.PodDisruptionBudget, s *policyv1.PodDisruptionBudgetStatus,
) (changed bool, err error) {
	if count.Same(b.GetStatus(), s) {
		return false, nil
	}
	m := b.GetMetadata()
	out, err := c.cfg.Client.PodDisruptionBudgets.UpdateStatus(ctx, &policyv1rpc.UpdatePodDisruptionBudgetRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), FieldManager: manager,
		Object: &policyv1.PodDisruptionBudget{Metadata: m.Shallow(), Spec: b.GetSpec(), Status: s},
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, c.budgets.WaitFor(ctx, out.GetMetadata().GetResourceVersion())
}
