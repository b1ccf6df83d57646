package nodelifecycle

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/nodelifecycle/zones"
	"monoplane.dev/object/builtin"
	"monoplane.dev/rules/taints"
)

// monitor is what is known of the nodes beyond their objects.
type monitor struct {
	// last is when all nodes were looked at last; zero before the first look.
	last time.Time
	// blind: the API did not answer since, so that nothing can be said of who did not speak to it.
	blind atomic.Bool
	nodes map[string]*health
	zones map[string]*zone
	// sparing is since when all zones are lost, while they are; told, that the log has it.
	sparing time.Time
	told    bool
}

// health is what has been heard of one node.
type health struct {
	uid string
	// renewed is the time that the node's Lease says it was renewed at, reported the one at which the node's status
	// says it was reported, as they were seen last. They are by the agent's clock: only that they change means
	// something.
	renewed, reported stamp
	// heard is when one of them was seen to change, by this process's monotonic clock, or since when it was looked at.
	heard time.Time
	// waits is since when the node waits for its turn to be evicted; zero when it does not.
	waits time.Time
	// zone is the key of the node's zone.
	zone string
	// looked is the look in which the node was there last.
	looked time.Time
}

// stamp is a time of an object, to be compared.
type stamp struct {
	seconds int64
	nanos   int32
}

// look looks at all nodes: who has been heard of, who is lost, and what that means for the zones.
func (c *Controller) look(ctx context.Context) {
	m, s := &c.monitor, &c.cfg.Settings
	leases, err := c.cfg.Client.Leases.List(ctx, &metav1.ListRequest{
		Namespace: builtin.NodeLeases, ResourceVersion: "0",
	})
	if err != nil {
		if ctx.Err() == nil {
			c.cfg.Logger.Warn("the leases of the nodes cannot be read", "error", err)
		}
		m.blind.Store(true)
		return
	}
	nodes, now := c.nodes.List("", nil), time.Now()
	first := m.last.IsZero()
	away := !first && now.Sub(m.last)-s.MonitorPeriod > s.MonitorGrace/4
	m.last = now
	for _, n := range nodes {
		c.meet(n, now, first)
	}
	for _, l := range leases.GetItems() {
		if h := m.nodes[l.GetMetadata().GetName()]; h != nil {
			t := l.GetSpec().GetRenewTime()
			h.hear(&h.renewed, stamp{t.GetSeconds(), t.GetNanos()}, now)
		}
	}
	c.forget(now)
	if blind := m.blind.Swap(false); blind || away {
		c.cfg.Logger.Warn("nodes were not watched over for a while; each gets its whole grace again")
		m.giveGrace(now)
	}
	c.declare(ctx, nodes, now)
	if m.blind.Load() {
		return // what was heard of is not known, so that nothing is concluded
	}
	c.weigh(nodes, now)
	c.queue(nodes, now)
}

// meet notes what the object of a node says.
func (c *Controller) meet(n *corev1.Node, now time.Time, first bool) {
	m, meta := &c.monitor, n.GetMetadata()
	h := m.nodes[meta.GetName()]
	if h == nil || h.uid != meta.GetUid() {
		h = &health{uid: meta.GetUid(), heard: now}
		m.nodes[meta.GetName()] = h
		if !first {
			c.events.Event(n, record.Normal, "RegisteredNode", "Registering",
				"Node "+meta.GetName()+" event: Registered Node "+meta.GetName()+" in Controller")
		}
	}
	h.looked, h.zone = now, zoneOf(n)
	h.hear(&h.reported, reported(n), now)
}

// hear takes a time by the agent's clock; another one than before means that the agent has spoken.
func (h *health) hear(last *stamp, said stamp, now time.Time) {
	if *last != said {
		*last, h.heard = said, now
	}
}

// forget drops nodes that are gone.
func (c *Controller) forget(now time.Time) {
	for name, h := range c.monitor.nodes {
		if h.looked != now {
			delete(c.monitor.nodes, name)
			c.events.EventFor(&corev1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: name, Uid: h.uid},
				record.Normal, "RemovingNode", "Removing", "Node "+name+" event: Removing Node "+name+" from Controller")
		}
	}
}

// giveGrace lets every node have been heard of now.
func (m *monitor) giveGrace(now time.Time) {
	for _, h := range m.nodes {
		h.heard = now
	}
}

// silent says whether nothing was heard of a node for its grace.
func (c *Controller) silent(h *health, n *corev1.Node, now time.Time) bool {
	grace := c.cfg.Settings.MonitorGrace
	if condition(n, ready) == nil {
		grace = c.cfg.Settings.StartupGrace
	}
	return now.Sub(h.heard) > grace
}

// declare says of the nodes that have been silent for their grace that they are lost, and replaces them in the list by
// what they have become. The pods of those that are lost are looked after.
func (c *Controller) declare(ctx context.Context, nodes []*corev1.Node, now time.Time) {
	var g errgroup.Group
	g.SetLimit(workers)
	for i, n := range nodes {
		h := c.monitor.nodes[n.GetMetadata().GetName()]
		if condition(n, ready).GetStatus() != unknown && c.silent(h, n, now) {
			g.Go(func() error {
				nodes[i] = c.confirm(ctx, h, n, now)
				return nil
			})
		}
	}
	_ = g.Wait() // none fails
	for _, n := range nodes {
		if condition(n, ready).GetStatus() == unknown {
			c.markPods(n)
		}
	}
}

// weigh finds out in which state the zones are, and sets their rates accordingly. When the last zone is lost no node
// is evicted any more, and those that were are not any more.
func (c *Controller) weigh(nodes []*corev1.Node, now time.Time) {
	m := &c.monitor
	for _, z := range m.zones {
		z.ready, z.not = 0, 0
	}
	for _, n := range nodes {
		if _, excluded := n.GetMetadata().GetLabels()[excludedLabel]; excluded {
			continue
		}
		z := m.zoneOf(m.nodes[n.GetMetadata().GetName()].zone, c.policy.Rate)
		if condition(n, ready).GetStatus() == "True" {
			z.ready++
		} else {
			z.not++
		}
	}
	all, counted := true, false
	for key, z := range m.zones {
		if z.ready+z.not == 0 {
			c.metrics.drop(key)
			z.state = ""
			continue
		}
		counted = true
		c.metrics.tell(key, z)
		state := c.policy.StateOf(z.ready, z.not)
		if state != z.state {
			c.cfg.Logger.Info("zone is in another state", "zone", zoneName(key), "state", string(state), "ready", z.ready,
				"not ready", z.not)
			z.state = state
		}
		all = all && state == zones.FullDisruption
	}
	all = all && counted
	switch was := c.sparing.Swap(all); {
	case all && !was:
		m.sparing = now
		for _, n := range nodes {
			c.tainting.Add(n.GetMetadata().GetName())
		}
	case was && !all:
		m.giveGrace(now)
		if m.told {
			c.cfg.Logger.Warn("some nodes are ready again: each gets its whole grace, and pods are evicted again")
		}
		m.told = false
	// While a cluster starts or stops, its only node is not ready, which is nothing to tell of.
	case all && !m.told && now.Sub(m.sparing) >= c.cfg.Settings.MonitorGrace:
		c.cfg.Logger.Warn("all nodes are lost or not ready: no pods are evicted")
		m.told = true
	}
	for _, z := range m.zones {
		rate := 0.0
		if !all {
			rate = c.policy.RateOf(z.state, z.ready+z.not)
		}
		z.limiter.SetRate(rate, now)
	}
}

// queue has the nodes wait for their turn that are to be evicted and are not. One of which only the object says that
// it is lost, because it was so before this process began to listen, has its grace first.
func (c *Controller) queue(nodes []*corev1.Node, now time.Time) {
	for _, n := range nodes {
		h := c.monitor.nodes[n.GetMetadata().GetName()]
		key := evicting(n)
		switch {
		case key == "", evicted(n), key == taints.Unreachable && !c.silent(h, n, now):
			h.waits = time.Time{}
		case h.waits.IsZero():
			h.waits = now
		}
	}
}
