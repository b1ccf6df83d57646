package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/ingress/certs"
	"monoplane.dev/controllers/ingress/front"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/endpoint"
)

const (
	// manager is what events are written as.
	manager = "ingress-controller"
	// syncing is what the controller is doing when it records an event.
	syncing = "ServeIngress"
	// gather is how long changes are collected before routes are made of them.
	gather = 10 * time.Millisecond
	// tlsSecrets selects the Secrets that certificates are in.
	tlsSecrets = "type=kubernetes.io/tls"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:ingress.
	Client *client.Client
	// Shared has the services and slices.
	Shared *controller.Shared
	// Entry is where requests arrive. Without listeners the controller does nothing.
	Entry controller.Ingress
	// SeveralServers says that others use the same etcd, and may serve the same Ingresses at addresses of their own.
	SeveralServers bool
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller serves Ingresses. Run starts it.
type Controller struct {
	cfg       Config
	events    *record.Recorder
	front     *front.Front
	byDefault *tls.Certificate

	synced, classed, routed atomic.Bool
	// now is what counts for requests; nil before the first.
	now atomic.Pointer[compiled]

	ingresses *cache.Cache[*networkingv1.Ingress]
	classes   *cache.Cache[*networkingv1.IngressClass]
	secrets   *cache.Cache[*corev1.Secret]
	services  *cache.Cache[*corev1.Service]
	slices    *cache.Cache[*discoveryv1.EndpointSlice]

	// routes is a queue of what requests depend on: a Service, or all routes, which have the empty key. It has one
	// worker.
	routes *loop.Loop[cache.Key]
	// statuses is a queue of Ingresses.
	statuses *loop.Loop[cache.Key]

	// What follows belongs to the worker of routes.
	backends map[cache.Key]map[port]*front.Backend
	parsed   map[cache.Key]parsed
	told     map[cache.Key]string
	served   map[cache.Key]bool
}

// parsed is a Secret that was looked at.
type parsed struct {
	revision    string
	certificate *tls.Certificate
	err         error
}

// everything is the key of all routes.
var everything cache.Key

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{cfg: cfg}
	if !cfg.Entry.On() {
		return c, nil
	}
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("ingress: no client, or no shared caches")
	}
	var err error
	if c.byDefault, err = certs.SelfSigned(); err != nil {
		return nil, fmt.Errorf("ingress: %w", err)
	}
	if c.front, err = front.New(front.Config{
		Find: c.find, Dial: cfg.Entry.Dial, Certificate: c.certificateFor, Logger: cfg.Logger,
	}); err != nil {
		return nil, err
	}
	c.events = record.New(record.Config{Events: cfg.Client.Events, Controller: manager, Logger: cfg.Logger})
	c.services = controller.Of[*corev1.Service](cfg.Shared)
	c.slices = controller.Of[*discoveryv1.EndpointSlice](cfg.Shared, controller.ByService)
	api := cfg.Client
	c.ingresses = cache.New(cache.Config[*networkingv1.Ingress]{
		Source: cache.Watch(api.Ingresses.Watch), Logger: cfg.Logger,
	})
	c.classes = cache.New(cache.Config[*networkingv1.IngressClass]{
		Source: cache.Watch(api.IngressClasses.Watch), Logger: cfg.Logger,
	})
	c.secrets = cache.New(cache.Config[*corev1.Secret]{
		Source: cache.Watch(api.Secrets.Watch), FieldSelector: tlsSecrets, Logger: cfg.Logger,
	})
	c.backends, c.parsed = map[cache.Key]map[port]*front.Backend{}, map[cache.Key]parsed{}
	c.told, c.served = map[cache.Key]string{}, map[cache.Key]bool{}
	return c, nil
}

// Ready returns nil once requests are served as the Ingresses say that there were at the start.
func (c *Controller) Ready() error {
	switch {
	case !c.cfg.Entry.On():
		return nil
	case !c.synced.Load():
		return errors.New("ingress controller: reading the ingresses, classes, secrets, services and slices")
	case !c.classed.Load() || !c.routed.Load():
		return errors.New("ingress controller: making the class and the routes")
	}
	return nil
}

// find returns the backend of a request.
func (c *Controller) find(host, path string) (*front.Backend, bool) {
	now := c.now.Load()
	if now == nil {
		return nil, true // nothing is known yet, which is no reason to say that there is nothing
	}
	return now.routes.Find(host, path)
}

// certificateFor returns what a client of HTTPS is shown.
func (c *Controller) certificateFor(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := c.now.Load(); now != nil {
		return now.certificates.For(hello.ServerName), nil
	}
	return c.byDefault, nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	if !c.cfg.Entry.On() {
		<-ctx.Done()
		return ctx.Err()
	}
	c.routes = loop.New(loop.Config[cache.Key]{
		Name: "ingress", Logger: c.cfg.Logger, Workers: 1, Reconcile: c.reconcile,
	})
	c.statuses = loop.New(loop.Config[cache.Key]{
		Name: "ingress status", Logger: c.cfg.Logger, Reconcile: c.writeStatus,
	})
	c.ingresses.AddHandler(handler(func(*networkingv1.Ingress) { c.routes.AddAfter(everything, gather) }))
	c.classes.AddHandler(handler(func(*networkingv1.IngressClass) { c.routes.AddAfter(everything, gather) }))
	c.secrets.AddHandler(handler(func(*corev1.Secret) { c.routes.AddAfter(everything, gather) }))
	c.services.AddHandler(handler(func(s *corev1.Service) { c.routes.Add(cache.KeyOf(s)) }))
	c.slices.AddHandler(handler(func(s *discoveryv1.EndpointSlice) {
		m := s.GetMetadata()
		if name := m.GetLabels()[endpoint.ServiceName]; name != "" {
			c.routes.Add(cache.Key{Namespace: m.GetNamespace(), Name: name})
		}
	}))
	c.routes.Add(everything)
	serve := func(ctx context.Context) error { return c.front.Serve(ctx, c.cfg.Entry.HTTP, c.cfg.Entry.HTTPS) }
	return c.routes.Serve(ctx, &c.synced,
		[]controller.Synced{c.ingresses, c.classes, c.secrets, c.services, c.slices},
		c.ingresses.Run, c.classes.Run, c.secrets.Run, c.events.Run, c.makeClass, c.statuses.Run, serve)
}

// handler hears of an object before and after each change.
func handler[T object.Object](f func(T)) cache.Handler[T] {
	return cache.Handler[T]{OnAdd: f, OnDelete: f, OnUpdate: func(old, now T) {
		f(old)
		f(now)
	}}
}
