// Package endpoints keeps the Endpoints of services with a selector, for programs that know no EndpointSlices: the
// addresses of its pods of one family, at most 1000 (package subsets). When nothing changes any more they are what the
// service and its pods say; Endpoints of services without a selector are left to whoever writes them, and all go with
// their service.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/endpoints/subsets"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/trigger"
	"monoplane.dev/object"
	"monoplane.dev/rules/endpoint"
	"monoplane.dev/rules/semantic"
)

const (
	// manager is what Endpoints are written as, and what their label says.
	manager = "endpoint-controller"
	// managerLabel is the label of Endpoints that says who writes them.
	managerLabel = "endpoints.kubernetes.io/managed-by"
	// overCapacity is the annotation of Endpoints that are not all.
	overCapacity = "endpoints.kubernetes.io/over-capacity"
	// syncing is what the controller is doing when it records an event.
	syncing = "SyncEndpoints"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:endpoint.
	Client *client.Client
	// Shared has the services, pods and Endpoints.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the Endpoints. Run starts it.
type Controller struct {
	cfg    Config
	events *record.Recorder
	synced atomic.Bool

	services  *cache.Cache[*corev1.Service]
	pods      *cache.Cache[*corev1.Pod]
	endpoints *cache.Cache[*corev1.Endpoints]

	queue    *loop.Loop[cache.Key] // of services
	triggers *trigger.Times
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("endpoints: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := cfg.Shared
	c := &Controller{
		cfg: cfg, services: controller.Of[*corev1.Service](s, controller.ByNamespace),
		pods: controller.Of[*corev1.Pod](s, controller.ByNamespace), endpoints: controller.Of[*corev1.Endpoints](s),
		triggers: trigger.New(),
	}
	c.events = record.New(record.Config{Events: cfg.Client.Events, Controller: manager, Logger: cfg.Logger})
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("endpoint controller: reading the services, pods and Endpoints")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "endpoint", Logger: c.cfg.Logger, Reconcile: c.reconcile})
	c.services.AddHandler(cache.Handler[*corev1.Service]{
		OnAdd: func(s *corev1.Service) {
			c.triggers.Begin(cache.KeyOf(s), s)
			c.queue.Add(cache.KeyOf(s))
		},
		OnUpdate: func(_, s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
		OnDelete: func(s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd:    func(p *corev1.Pod) { c.podMatters(p, p) },
		OnUpdate: c.podChanged,
		OnDelete: func(p *corev1.Pod) { c.podMatters(p, nil) },
	})
	// Endpoints that others spoil are mended; those that were left when their service went, go.
	written := func(e *corev1.Endpoints) {
		if e.GetMetadata().GetLabels()[managerLabel] == manager {
			c.queue.Add(cache.KeyOf(e))
		}
	}
	c.endpoints.AddHandler(cache.Handler[*corev1.Endpoints]{
		OnAdd: written, OnUpdate: func(old, now *corev1.Endpoints) { written(old); written(now) }, OnDelete: written,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.services, c.pods, c.endpoints}, c.events.Run)
}

// podChanged passes on what endpoints depend on: most changes of pods are others.
func (c *Controller) podChanged(old, now *corev1.Pod) {
	itself, membership := endpoint.Changed(old, now)
	if membership {
		c.podMatters(old, nil)
	}
	if itself || membership {
		c.podMatters(now, now)
	}
}

func (c *Controller) podMatters(p, there *corev1.Pod) {
	m := p.GetMetadata()
	for _, s := range c.services.ByIndex(controller.ByNamespace, m.GetNamespace()) {
		if endpoint.Selects(s, m.GetLabels()) {
			c.triggers.Note(cache.KeyOf(s), there)
			c.queue.Add(cache.KeyOf(s))
		}
	}
}

// reconcile brings the Endpoints of one service up to date.
func (c *Controller) reconcile(ctx context.Context, k cache.Key) (time.Duration, error) {
	at := c.triggers.Take(k)
	s, ok := c.services.Get(k.Namespace, k.Name)
	if !ok {
		return 0, c.remove(ctx, k)
	}
	if !endpoint.Selecting(s) {
		return 0, nil
	}
	all := slices.DeleteFunc(c.pods.ByIndex(controller.ByNamespace, k.Namespace),
		func(p *corev1.Pod) bool { return !endpoint.Selects(s, p.GetMetadata().GetLabels()) })
	wanted, over := subsets.Truncate(subsets.Of(s, all))
	labels := labelsOf(s)
	live, exists := c.endpoints.Get(k.Namespace, k.Name)
	_, marked := live.GetMetadata().GetAnnotations()[overCapacity]
	if exists && marked == over && maps.Equal(live.GetMetadata().GetLabels(), labels) &&
		semantic.Equal(&corev1.Endpoints{Subsets: live.GetSubsets()}, &corev1.Endpoints{Subsets: wanted}) {
		return 0, nil
	}
	next := &corev1.Endpoints{
		Metadata: &metav1.ObjectMeta{Name: k.Name, Namespace: k.Namespace}, Subsets: wanted,
	}
	if exists {
		next.Metadata = object.Clone(live.GetMetadata())
	}
	next.Metadata.Labels = labels
	trigger.Annotate(next.Metadata, at)
	delete(next.Metadata.Annotations, overCapacity)
	if over {
		if next.Metadata.Annotations == nil {
			next.Metadata.Annotations = map[string]string{}
		}
		next.Metadata.Annotations[overCapacity] = "truncated"
	}
	err := c.write(ctx, next, exists)
	if err != nil && ctx.Err() == nil {
		c.triggers.Return(k, at)
	}
	return 0, err
}

// labelsOf returns the labels of a service's Endpoints.
func labelsOf(s *corev1.Service) map[string]string {
	labels := maps.Clone(s.GetMetadata().GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, endpoint.Headless)
	if !endpoint.HasAddress(s) {
		labels[endpoint.Headless] = ""
	}
	labels[managerLabel] = manager
	return labels
}

// write stores Endpoints, and waits until the cache has them.
func (c *Controller) write(ctx context.Context, e *corev1.Endpoints, exists bool) error {
	m := e.GetMetadata()
	var out *corev1.Endpoints
	var err error
	if exists {
		out, err = c.cfg.Client.Endpoints.Update(ctx, &corev1rpc.UpdateEndpointsRequest{
			Namespace: m.GetNamespace(), Name: m.GetName(), Object: e, FieldManager: manager,
		})
	} else {
		out, err = c.cfg.Client.Endpoints.Create(ctx, &corev1rpc.CreateEndpointsRequest{
			Namespace: m.GetNamespace(), Object: e, FieldManager: manager,
		})
	}
	switch {
	case err == nil:
		return c.endpoints.WaitFor(ctx, out.GetMetadata().GetResourceVersion())
	case apierrors.NamespaceGoes(err):
		return nil // and with it the service
	case ctx.Err() == nil && !apierrors.Is(err, apierrors.Conflict) && !apierrors.Is(err, apierrors.AlreadyExists):
		reason, note := "FailedToUpdateEndpoint", fmt.Sprintf("Failed to update endpoint %s: %v", cache.KeyOf(e), err)
		if !exists {
			reason, note = "FailedToCreateEndpoint", fmt.Sprintf("Failed to create endpoint for service %s: %v",
				cache.KeyOf(e), err)
		}
		c.events.Event(e, record.Warning, reason, syncing, note)
	}
	return err
}

// remove deletes the Endpoints of a service that is gone, not on a cache's word.
func (c *Controller) remove(ctx context.Context, k cache.Key) error {
	live, ok := c.endpoints.Get(k.Namespace, k.Name)
	if !ok {
		return nil
	}
	_, err := c.cfg.Client.Services.Get(ctx, &metav1.GetRequest{Namespace: k.Namespace, Name: k.Name})
	if !apierrors.Is(err, apierrors.NotFound) {
		return err // it is there again, and the cache will say so; or nobody knows
	}
	uid := live.GetMetadata().GetUid()
	_, err = c.cfg.Client.Endpoints.Delete(ctx, &metav1.DeleteRequest{
		Namespace: k.Namespace, Name: k.Name,
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	if apierrors.Is(err, apierrors.NotFound) || apierrors.Is(err, apierrors.Conflict) {
		return nil
	}
	return err
}
