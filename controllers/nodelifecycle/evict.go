package nodelifecycle

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/nodelifecycle/zones"
	"monoplane.dev/rules/taints"
)

// excludedLabel keeps a node from counting when it is judged in which state its zone is.
const excludedLabel = "node.kubernetes.io/exclude-disruption"

// zone is what is known of one zone.
type zone struct {
	limiter zones.Limiter
	// state is empty before the first look, and while the zone has no node that counts.
	state zones.State
	// ready and not are the numbers of nodes that are ready and that are not.
	ready, not int
}

// zoneOf returns the zone with a key.
func (m *monitor) zoneOf(key string, rate float64) *zone {
	z := m.zones[key]
	if z == nil {
		z = &zone{limiter: zones.NewLimiter(rate)}
		m.zones[key] = z
	}
	return z
}

// zoneSeparator stands between region and zone in a key. No label has it.
const zoneSeparator = ":\x00:"

// zoneOf returns the key of a node's zone, empty for none.
func zoneOf(n *corev1.Node) string {
	labels := n.GetMetadata().GetLabels()
	first := func(keys ...string) string {
		for _, k := range keys {
			if v, ok := labels[k]; ok {
				return v
			}
		}
		return ""
	}
	zone := first("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
	region := first("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
	if zone == "" && region == "" {
		return ""
	}
	return region + zoneSeparator + zone
}

// zoneName returns a zone's key as people read it.
func zoneName(key string) string {
	return strings.Trim(strings.ReplaceAll(key, zoneSeparator, "/"), "/")
}

// evict gives the taint that evicts pods to the nodes whose turn it is, in the order in which they have been waiting,
// and returns after which time it is the turn of the next.
func (c *Controller) evict(ctx context.Context) time.Duration {
	type waiting struct {
		name string
		*health
	}
	var line []waiting
	for name, h := range c.monitor.nodes {
		if !h.waits.IsZero() {
			line = append(line, waiting{name, h})
		}
	}
	slices.SortFunc(line, func(a, b waiting) int {
		return cmp.Or(a.waits.Compare(b.waits), cmp.Compare(a.name, b.name))
	})
	next := zones.Never
	for _, w := range line {
		n, ok := c.nodes.Get("", w.name)
		if !ok || evicting(n) == "" || evicted(n) {
			w.waits = time.Time{}
			continue
		}
		z := c.monitor.zoneOf(w.zone, c.policy.Rate)
		wait, ok := z.limiter.Take(time.Now())
		if !ok {
			next = min(next, wait)
			continue
		}
		if err := c.evictNode(ctx, n); err != nil {
			// It keeps its place, and takes another turn.
			c.cfg.Logger.Debug("a node that is lost was written meanwhile, or cannot be", "node", w.name, "error", err)
			next = 0
			continue
		}
		w.waits = time.Time{}
		c.metrics.evictions.WithLabelValues(zoneName(w.zone)).Inc()
		c.cfg.Logger.Warn("the pods of a node are to be evicted, but for those that tolerate its taint", "node", w.name,
			"taint", evicting(n))
	}
	return next
}

// evicted says whether a node has a taint that evicts its pods because it is lost or not ready.
func evicted(n *corev1.Node) bool {
	have := n.GetSpec().GetTaints()
	return taints.Find(have, taints.NotReady, taints.NoExecute) != nil ||
		taints.Find(have, taints.Unreachable, taints.NoExecute) != nil
}

// maxWrites is how often a write that others come before is tried within one turn.
const maxWrites = 5

// evictNode gives a node the taint that evicts pods, unless it is ready by now, and waits until it is seen to have it.
func (c *Controller) evictNode(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for writes := 1; evicting(n) != "" && !evicted(n); writes++ {
		now := time.Now()
		next := wanted(n, false, now)
		if next == nil {
			next = slices.Clone(n.GetSpec().GetTaints())
		}
		tainted, err := c.writeTaints(ctx, n, append(next, newTaint(evicting(n), taints.NoExecute, now)))
		if err == nil {
			c.seen(ctx, tainted)
			return nil
		}
		if !apierrors.Is(err, apierrors.Conflict) || writes == maxWrites {
			return err
		}
		// Most likely its other taints have just been written.
		if n, err = c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: n.GetMetadata().GetName()}); err != nil {
			return err
		}
	}
	return nil
}
