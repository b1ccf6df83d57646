package nodelifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/nodelifecycle/zones"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:node-lifecycle.
	Client *client.Client
	// Shared has the pods and nodes.
	Shared *controller.Shared
	// Settings are the times and rates.
	Settings controller.NodeLifecycle
	// Logger is told of nodes that are lost and come back, and of failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller watches over the nodes. Run starts it.
type Controller struct {
	cfg     Config
	policy  zones.Policy
	metrics *metrics
	synced  atomic.Bool

	pods  *cache.Cache[*corev1.Pod]
	nodes *cache.Cache[*corev1.Node]
	// tainting has the names of nodes whose taints may differ from what they should be, marking the pods that may have
	// to be said to be on a lost node.
	tainting *loop.Loop[string]
	marking  *loop.Loop[podItem]
	events   *record.Recorder

	// sparing: all zones are lost, so that no node has taints that evict. The monitor writes it.
	sparing atomic.Bool
	// monitor belongs to the goroutine that looks at all nodes.
	monitor monitor
}

// workers is how many nodes, and how many pods, are written at once.
const workers = 8

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("nodelifecycle: no client, or no shared caches")
	}
	var err error
	if cfg.Settings, err = cfg.Settings.Complete(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := cfg.Settings
	return &Controller{
		cfg: cfg, metrics: m, pods: controller.Of[*corev1.Pod](cfg.Shared, controller.ByNode),
		nodes: controller.Of[*corev1.Node](cfg.Shared),
		policy: zones.Policy{
			Rate: s.EvictionRate, Secondary: s.SecondaryEvictionRate, Large: s.LargeZone, Unhealthy: s.UnhealthyZone,
		},
		events: record.New(record.Config{
			Events: cfg.Client.Events, Controller: "node-controller", Logger: cfg.Logger,
		}),
		monitor: monitor{nodes: map[string]*health{}, zones: map[string]*zone{}},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("node-lifecycle controller: reading the pods and nodes")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.tainting = loop.New(loop.Config[string]{
		Name: "node-lifecycle", Reconcile: c.keepTaints, Workers: workers, Logger: c.cfg.Logger,
	})
	c.marking = loop.New(loop.Config[podItem]{
		Name: "node-lifecycle-pods", Reconcile: c.markPod, Workers: workers, Logger: c.cfg.Logger,
	})
	c.nodes.AddHandler(cache.Handler[*corev1.Node]{
		OnAdd:    func(n *corev1.Node) { c.tainting.Add(n.GetMetadata().GetName()) },
		OnUpdate: func(_, n *corev1.Node) { c.tainting.Add(n.GetMetadata().GetName()) },
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.tainting.Run(ctx) })
	g.Go(func() error { return c.marking.Run(ctx) })
	g.Go(func() error { return c.events.Run(ctx) })
	g.Go(func() error {
		if err := controller.WaitForSync(ctx, c.pods, c.nodes); err != nil {
			return err
		}
		c.synced.Store(true)
		return c.watchOver(ctx)
	})
	return g.Wait()
}

// watchOver looks at all nodes again and again, and evicts nodes meanwhile when their turn comes.
func (c *Controller) watchOver(ctx context.Context) error {
	look := time.NewTicker(c.cfg.Settings.MonitorPeriod)
	defer look.Stop()
	turn := time.NewTimer(zones.Never)
	defer turn.Stop()
	c.look(ctx)
	for {
		turn.Reset(c.evict(ctx))
		select {
		case <-look.C:
			c.look(ctx)
		case <-turn.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
