package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/taints"
)

// scan looks at all pods and returns those that seem due. What it sees may be old: reconcile asks the server.
func (c *Controller) scan(now time.Time) []item {
	var due []item
	var done []*corev1.Pod
	withPods := map[string]bool{}
	for _, p := range c.pods.List("", nil) {
		node := p.GetSpec().GetNodeName()
		switch {
		case finished(p):
			// Nothing is left to do but what finalizers wait for.
		case node != "" && c.gone(node, now, withPods):
			due = append(due, itemOf(p, orphaned))
		case node != "" && terminating(p) && c.out(node):
			due = append(due, itemOf(p, outOfService))
		case node == "" && terminating(p):
			due = append(due, itemOf(p, unscheduled))
		case phase.Terminal(p):
			done = append(done, p)
		}
	}
	for node := range c.absent {
		if !withPods[node] {
			delete(c.absent, node) // it is back, or no pod names it any more
		}
	}
	return append(due, c.excess(done)...)
}

// gone says whether a node has been missing from the cache for the whole quarantine, and begins one for a node that is
// newly missing.
func (c *Controller) gone(node string, now time.Time, missing map[string]bool) bool {
	if _, ok := c.nodes.Get("", node); ok {
		return false
	}
	missing[node] = true
	since, ok := c.absent[node]
	if !ok {
		c.absent[node] = now
		return false
	}
	return now.Sub(since) >= c.cfg.Quarantine
}

// out says whether a node seems out of service.
func (c *Controller) out(node string) bool {
	n, ok := c.nodes.Get("", node)
	return ok && taints.Out(n)
}

// excess returns the terminal pods beyond the threshold: evicted ones first, then the oldest (GC-4).
func (c *Controller) excess(done []*corev1.Pod) []item {
	n := len(done) - c.cfg.Threshold
	if c.cfg.Threshold < 0 || n <= 0 {
		return nil
	}
	slices.SortFunc(done, func(a, b *corev1.Pod) int {
		am, bm := a.GetMetadata(), b.GetMetadata()
		return cmp.Or(
			-compareBool(evicted(a), evicted(b)),
			compareTime(am.GetCreationTimestamp(), bm.GetCreationTimestamp()),
			cmp.Compare(am.GetNamespace(), bm.GetNamespace()),
			cmp.Compare(am.GetName(), bm.GetName()),
		)
	})
	due := make([]item, 0, n)
	for _, p := range done[:n] {
		due = append(due, itemOf(p, terminated))
	}
	return due
}

func itemOf(p *corev1.Pod, r reason) item {
	return item{key: cache.KeyOf(p), uid: p.GetMetadata().GetUid(), reason: r}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

func compareTime(a, b *metav1.Time) int {
	return cmp.Or(cmp.Compare(a.GetSeconds(), b.GetSeconds()), cmp.Compare(a.GetNanos(), b.GetNanos()))
}

func terminating(p *corev1.Pod) bool { return p.GetMetadata().GetDeletionTimestamp() != nil }

func evicted(p *corev1.Pod) bool {
	return p.GetStatus().GetPhase() == phase.Failed && p.GetStatus().GetReason() == "Evicted"
}

// finished says whether the pod is terminal and its forced deletion has been accepted, so that only finalizers hold
// it.
func finished(p *corev1.Pod) bool {
	m := p.GetMetadata()
	return phase.Terminal(p) && terminating(p) && m.DeletionGracePeriodSeconds != nil &&
		m.GetDeletionGracePeriodSeconds() == 0
}
