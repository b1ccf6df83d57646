package podgc

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
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
)

// The defaults.
const (
	// DefaultThreshold is also that of the command line and of embedders.
	DefaultThreshold  = 12500
	DefaultPeriod     = 20 * time.Second
	DefaultQuarantine = 40 * time.Second
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:podgc.
	Client *client.Client
	// Shared has the pods and nodes.
	Shared *controller.Shared
	// Threshold is how many terminal pods are kept; 0 means DefaultThreshold, a negative one turns GC-4 off.
	Threshold int
	// Period is the time between two looks at all pods.
	Period time.Duration
	// Quarantine is how long a node must be gone before its pods are orphans.
	Quarantine time.Duration
	// Workers is how many pods are removed at once; 8 by default.
	Workers int
	// Logger is told what is removed and why; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller removes pods. Run starts it.
type Controller struct {
	cfg     Config
	metrics *metrics
	synced  atomic.Bool

	pods  *cache.Cache[*corev1.Pod]
	nodes *cache.Cache[*corev1.Node]
	queue *loop.Loop[item]

	// absent says since when each node with pods has been missing. Only the scanning goroutine uses it.
	absent map[string]time.Time
}

// item is one pod to remove. It holds the uid, so that a successor is another item.
type item struct {
	key    cache.Key
	uid    string
	reason reason
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("podgc: no client, or no shared caches")
	}
	if cfg.Threshold == 0 {
		cfg.Threshold = DefaultThreshold
	}
	if cfg.Period <= 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Quarantine <= 0 {
		cfg.Quarantine = DefaultQuarantine
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Controller{
		cfg: cfg, metrics: m, absent: map[string]time.Time{},
		pods: controller.Of[*corev1.Pod](cfg.Shared), nodes: controller.Of[*corev1.Node](cfg.Shared),
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("podgc: reading the pods and nodes")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[item]{
		Name: "podgc", Reconcile: c.reconcile, Workers: c.cfg.Workers, Logger: c.cfg.Logger,
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error {
		if err := controller.WaitForSync(ctx, c.pods, c.nodes); err != nil {
			return err
		}
		c.synced.Store(true)
		tick := time.NewTicker(c.cfg.Period)
		defer tick.Stop()
		for {
			for _, i := range c.scan(time.Now()) {
				c.queue.Add(i)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return g.Wait()
}
