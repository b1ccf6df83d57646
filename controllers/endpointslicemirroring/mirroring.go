// Package endpointslicemirroring copies Endpoints that somebody wrote for a service without a selector to
// EndpointSlices, so that whoever routes traffic has to know slices alone. Label
// endpointslice.kubernetes.io/skip-mirror=true says that they are not to be copied. What is copied is package mirror's
// decision; slices of which the Endpoints or the service are gone, or whose service has a selector now, are removed.
package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/endpointslicemirroring/mirror"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/sliceset"
	"monoplane.dev/rules/endpoint"
)

const (
	// manager is what slices are written as.
	manager = "endpointslicemirroring-controller"
	// syncing is what the controller is doing when it records an event.
	syncing = "MirrorEndpoints"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:endpointslicemirroring.
	Client *client.Client
	// Shared has the services, Endpoints and slices.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller copies Endpoints. Run starts it.
type Controller struct {
	cfg    Config
	events *record.Recorder
	writer sliceset.Writer
	synced atomic.Bool

	services  *cache.Cache[*corev1.Service]
	endpoints *cache.Cache[*corev1.Endpoints]
	slices    *cache.Cache[*discoveryv1.EndpointSlice]

	queue *loop.Loop[cache.Key] // of Endpoints, which have the names of services
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("endpointslicemirroring: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := cfg.Shared
	c := &Controller{
		cfg: cfg, services: controller.Of[*corev1.Service](s), endpoints: controller.Of[*corev1.Endpoints](s),
		slices: controller.Of[*discoveryv1.EndpointSlice](s, controller.ByService),
	}
	c.events = record.New(record.Config{Events: cfg.Client.Events, Controller: manager, Logger: cfg.Logger})
	c.writer = sliceset.Writer{Client: cfg.Client, Cache: c.slices, Manager: manager}
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("endpointslicemirroring controller: reading the services, Endpoints and slices")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{
		Name: "endpointslicemirroring", Logger: c.cfg.Logger, Reconcile: c.reconcile, Workers: 1,
	})
	c.services.AddHandler(cache.Handler[*corev1.Service]{
		OnAdd:    func(s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
		OnUpdate: func(_, s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
		OnDelete: func(s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
	})
	c.endpoints.AddHandler(cache.Handler[*corev1.Endpoints]{
		OnAdd:    func(e *corev1.Endpoints) { c.queue.Add(cache.KeyOf(e)) },
		OnUpdate: func(_, e *corev1.Endpoints) { c.queue.Add(cache.KeyOf(e)) },
		OnDelete: func(e *corev1.Endpoints) { c.queue.Add(cache.KeyOf(e)) },
	})
	written := func(s *discoveryv1.EndpointSlice) {
		m := s.GetMetadata()
		if name := m.GetLabels()[endpoint.ServiceName]; mirrored(s) && name != "" {
			c.queue.Add(cache.Key{Namespace: m.GetNamespace(), Name: name})
		}
	}
	c.slices.AddHandler(cache.Handler[*discoveryv1.EndpointSlice]{
		OnAdd: written, OnUpdate: func(old, now *discoveryv1.EndpointSlice) { written(old); written(now) },
		OnDelete: written,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.services, c.endpoints, c.slices}, c.events.Run)
}

func mirrored(s *discoveryv1.EndpointSlice) bool {
	return s.GetMetadata().GetLabels()[endpoint.SliceManager] == mirror.Manager
}

// reconcile brings the copies of one Endpoints up to date.
func (c *Controller) reconcile(ctx context.Context, k cache.Key) (time.Duration, error) {
	existing := slices.DeleteFunc(c.slices.ByIndex(controller.ByService, k.String()),
		func(s *discoveryv1.EndpointSlice) bool {
			return !mirrored(s) || s.GetMetadata().GetDeletionTimestamp() != nil
		})
	e, ok := c.endpoints.Get(k.Namespace, k.Name)
	s, served := c.services.Get(k.Namespace, k.Name)
	if !ok || !served || !mirror.Wanted(e) || len(s.GetSpec().GetSelector()) > 0 {
		return 0, c.writer.Write(ctx, k.Namespace, nil, nil, existing)
	}
	plan := mirror.Decide(e, existing)
	if plan.Invalid > 0 {
		c.events.Event(e, record.Warning, "InvalidIPAddress", syncing,
			fmt.Sprintf("Skipped %d invalid IP addresses when mirroring to EndpointSlices", plan.Invalid))
	}
	if plan.Skipped > plan.Invalid {
		c.events.Event(e, record.Warning, "TooManyAddressesToMirror", syncing, fmt.Sprintf(
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			mirror.Max, plan.Skipped))
	}
	return 0, c.writer.Write(ctx, k.Namespace, plan.Create, plan.Update, plan.Delete)
}
