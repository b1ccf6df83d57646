package disruption

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/rules/disruption"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:disruption.
	Client *client.Client
	// Shared has the pods and ReplicaSets.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller counts budgets and takes back conditions. Run starts it.
type Controller struct {
	cfg    Config
	events *record.Recorder
	scales *scales
	synced atomic.Bool

	pods        *cache.Cache[*corev1.Pod]
	replicaSets *cache.Cache[*appsv1.ReplicaSet]
	budgets     *cache.Cache[*policyv1.PodDisruptionBudget]

	counting *loop.Loop[cache.Key] // of budgets
	stale    *loop.Loop[cache.Key] // of pods
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("disruption: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, pods: controller.Of[*corev1.Pod](cfg.Shared, controller.ByNamespace),
		replicaSets: controller.Of[*appsv1.ReplicaSet](cfg.Shared),
	}
	c.scales = newScales(cfg.Client.Conn(), c.replicaSets)
	c.events = record.New(record.Config{
		Events: cfg.Client.Events, Controller: "controllermanager", Logger: cfg.Logger,
	})
	c.budgets = cache.New(cache.Config[*policyv1.PodDisruptionBudget]{
		Source: cache.Watch(cfg.Client.PodDisruptionBudgets.Watch), Logger: cfg.Logger,
		Indexes: controller.Indexes[*policyv1.PodDisruptionBudget](controller.ByNamespace),
	})
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("disruption controller: reading the pods, ReplicaSets and budgets")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.counting = loop.New(loop.Config[cache.Key]{Name: "disruption", Logger: c.cfg.Logger, Reconcile: c.count})
	c.stale = loop.New(loop.Config[cache.Key]{
		Name: "stale-disruption", Logger: c.cfg.Logger, Reconcile: c.takeBack, Workers: 1,
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: c.podCame, OnUpdate: c.podChanged, OnDelete: c.budgetsOf})
	c.budgets.AddHandler(cache.Handler[*policyv1.PodDisruptionBudget]{
		OnAdd:    func(b *policyv1.PodDisruptionBudget) { c.counting.Add(cache.KeyOf(b)) },
		OnUpdate: func(_, b *policyv1.PodDisruptionBudget) { c.counting.Add(cache.KeyOf(b)) },
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.events.Run(ctx) })
	g.Go(func() error { return c.budgets.Run(ctx) })
	g.Go(func() error {
		defer c.counting.Stop() // also when they were never run
		defer c.stale.Stop()
		if err := controller.WaitForSync(ctx, c.pods, c.replicaSets, c.budgets); err != nil {
			return err
		}
		c.synced.Store(true)
		g.Go(func() error { return c.stale.Run(ctx) })
		return c.counting.Run(ctx)
	})
	return g.Wait()
}

func (c *Controller) podCame(p *corev1.Pod) {
	c.budgetsOf(p)
	if targeted(p) {
		c.stale.Add(cache.KeyOf(p))
	}
}

// podChanged passes on what budgets and the condition depend on: most changes of pods are others.
func (c *Controller) podChanged(old, now *corev1.Pod) {
	o, n := old.GetMetadata(), now.GetMetadata()
	labels := !maps.Equal(o.GetLabels(), n.GetLabels())
	if labels {
		c.budgetsOf(old)
	}
	if labels || o.GetUid() != n.GetUid() || disruption.Healthy(old) != disruption.Healthy(now) ||
		(o.GetDeletionTimestamp() == nil) != (n.GetDeletionTimestamp() == nil) ||
		!proto.Equal(controller.ManagerOf(old), controller.ManagerOf(now)) {
		c.budgetsOf(now)
	}
	if targeted(now) {
		c.stale.Add(cache.KeyOf(now))
	}
}

// budgetsOf has the budgets counted that select a pod.
func (c *Controller) budgetsOf(p *corev1.Pod) {
	m := p.GetMetadata()
	for _, b := range c.budgets.ByIndex(controller.ByNamespace, m.GetNamespace()) {
		if disruption.Selects(b, m.GetLabels()) {
			c.counting.Add(cache.KeyOf(b))
		}
	}
}
