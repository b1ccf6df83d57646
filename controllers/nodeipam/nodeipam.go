// Package nodeipam is the controller that gives each node the range of addresses from which its pods have theirs:
// spec.podCIDRs, one of each family of the cluster's ranges.
//
// What it guarantees: a node that has a range keeps it, whoever gave it; no two nodes have ranges that overlap, as far
// as this controller gave them. A range is free again when its node is deleted. Writes compare the version of the node
// that was judged, and nodes are judged one after another, each by a view that has all writes before it.
//
// Nodes for which no range is left wait until another node goes; that they do is logged once.
package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/podrange"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the nodes.
	Shared *controller.Shared
	// Ranges are the cluster's; without any, nodes are given none.
	Ranges []podrange.Cluster
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller gives ranges. Run starts it.
type Controller struct {
	api    *client.Client
	logger *slog.Logger
	nodes  *cache.Cache[*corev1.Node]
	ranges []podrange.Cluster
	synced atomic.Bool

	mu      sync.Mutex
	waiting map[string]bool // Nodes for which there was no range.
	// tried has what nodes may have been given by writes of which the outcome is not known. It is nobody else's until it
	// is.
	tried map[string][]netip.Prefix
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("nodeipam: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{api: cfg.Client, logger: cfg.Logger, ranges: cfg.Ranges, waiting: map[string]bool{},
		tried: map[string][]netip.Prefix{}}
	if len(cfg.Ranges) > 0 {
		c.nodes = controller.Of[*corev1.Node](cfg.Shared)
	}
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if c.nodes != nil && !c.synced.Load() {
		return errors.New("controller of the nodes' ranges of addresses: reading the nodes")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	if c.nodes == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	// One worker: what one node is given, the next must not be.
	queue := loop.New(loop.Config[string]{Name: "node-ipam", Reconcile: c.reconcile, Workers: 1, Logger: c.logger})
	add := func(n *corev1.Node) {
		if len(n.GetSpec().GetPodCIDRs()) == 0 {
			queue.Add(n.GetMetadata().GetName())
		}
	}
	c.nodes.AddHandler(cache.Handler[*corev1.Node]{OnAdd: add, OnUpdate: func(_, n *corev1.Node) { add(n) },
		OnDelete: func(n *corev1.Node) {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.waiting, n.GetMetadata().GetName())
			delete(c.tried, n.GetMetadata().GetName())
			if len(n.GetSpec().GetPodCIDRs()) == 0 {
				return
			}
			for name := range c.waiting { // The first of them gets it, the others wait again.
				queue.Add(name)
			}
		}})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.nodes})
}

// reconcile gives a node its ranges.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, err := c.api.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read node %s before it is given a range: %w", name, err)
	}
	if len(node.GetSpec().GetPodCIDRs()) > 0 {
		return 0, c.settled(ctx, node)
	}
	var given []string
	var parts []netip.Prefix
	taken := c.taken(name)
	for _, r := range c.ranges {
		part, ok := r.Free(taken)
		if !ok {
			c.wait(name, r)
			return 0, nil
		}
		given, parts = append(given, part.String()), append(parts, part)
	}
	node = object.Clone(node)
	if node.Spec == nil {
		node.Spec = &corev1.NodeSpec{}
	}
	node.Spec.PodCIDRs, node.Spec.PodCIDR = given, given[0]
	c.mu.Lock()
	c.tried[name] = parts
	c.mu.Unlock()
	written, err := c.api.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{Object: node})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("give node %s the ranges %v: %w", name, given, err)
	}
	return 0, c.settled(ctx, written)
}

// settled waits until the nodes that are known here have the ranges of one, so that no other is given them.
func (c *Controller) settled(ctx context.Context, node *corev1.Node) error {
	if err := c.nodes.WaitFor(ctx, node.GetMetadata().GetResourceVersion()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, node.GetMetadata().GetName())
	delete(c.tried, node.GetMetadata().GetName())
	return nil
}

// wait notes that a node waits for a range.
func (c *Controller) wait(name string, r podrange.Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.logger.Warn("no range of addresses for pods is left for more nodes; they wait until others are deleted",
			"range", r.Prefix(), "parts", r.Parts(), "node", name)
	}
	c.waiting[name] = true
}

// taken returns the ranges that nodes have, or may have, except one.
func (c *Controller) taken(except string) (all []netip.Prefix) {
	c.mu.Lock()
	for name, parts := range c.tried {
		if name != except {
			all = append(all, parts...)
		}
	}
	c.mu.Unlock()
	for _, n := range c.nodes.List("", nil) {
		for _, text := range n.GetSpec().GetPodCIDRs() {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, p)
			}
		}
	}
	return all
}
