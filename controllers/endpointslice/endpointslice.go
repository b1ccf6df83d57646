package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	wanted "monoplane.dev/controllers/endpointslice/slices"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/sliceset"
	"monoplane.dev/controllers/internal/trigger"
	"monoplane.dev/rules/endpoint"
)

const (
	// manager is what slices are written as.
	manager = "endpointslice-controller"
	// syncing is what the controller is doing when it records an event.
	syncing = "SyncEndpointSlices"
	// maxEndpoints is how many endpoints a slice may have.
	maxEndpoints = 100
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:endpointslice.
	Client *client.Client
	// Shared has the services, pods, nodes and slices.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the slices. Run starts it.
type Controller struct {
	cfg    Config
	events *record.Recorder
	writer sliceset.Writer
	synced atomic.Bool

	services *cache.Cache[*corev1.Service]
	pods     *cache.Cache[*corev1.Pod]
	nodes    *cache.Cache[*corev1.Node]
	slices   *cache.Cache[*discoveryv1.EndpointSlice]

	queue    *loop.Loop[cache.Key] // of services
	triggers *trigger.Times

	mu sync.Mutex
	// shares are the parts of zones in all processors; known says that they are those of the nodes now.
	shares map[string]float64
	known  bool
	// told is what was last said about hints by topology, by service.
	told map[cache.Key]string
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("endpointslice: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := cfg.Shared
	c := &Controller{
		cfg: cfg, services: controller.Of[*corev1.Service](s, controller.ByNamespace),
		pods:  controller.Of[*corev1.Pod](s, controller.ByNamespace, controller.ByNode),
		nodes: controller.Of[*corev1.Node](s), slices: controller.Of[*discoveryv1.EndpointSlice](s, controller.ByService),
		triggers: trigger.New(), told: map[cache.Key]string{},
	}
	c.events = record.New(record.Config{Events: cfg.Client.Events, Controller: manager, Logger: cfg.Logger})
	c.writer = sliceset.Writer{Client: cfg.Client, Cache: c.slices, Manager: manager}
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("endpointslice controller: reading the services, pods, nodes and slices")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "endpointslice", Logger: c.cfg.Logger, Reconcile: c.reconcile})
	c.services.AddHandler(cache.Handler[*corev1.Service]{
		OnAdd: c.serviceCame,
		OnUpdate: func(old, now *corev1.Service) {
			if old.GetMetadata().GetUid() != now.GetMetadata().GetUid() {
				c.serviceCame(now)
				return
			}
			c.queue.Add(cache.KeyOf(now))
		},
		OnDelete: func(s *corev1.Service) { c.queue.Add(cache.KeyOf(s)) },
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd:    func(p *corev1.Pod) { c.podMatters(p, p) },
		OnUpdate: c.podChanged,
		OnDelete: func(p *corev1.Pod) { c.podMatters(p, nil) },
	})
	c.nodes.AddHandler(cache.Handler[*corev1.Node]{
		OnAdd:    func(n *corev1.Node) { c.nodeChanged(&corev1.Node{}, n) },
		OnUpdate: c.nodeChanged,
		OnDelete: func(n *corev1.Node) { c.nodeChanged(n, &corev1.Node{}) },
	})
	c.slices.AddHandler(cache.Handler[*discoveryv1.EndpointSlice]{
		OnAdd: c.sliceWritten,
		OnUpdate: func(old, now *discoveryv1.EndpointSlice) {
			c.sliceWritten(old)
			c.sliceWritten(now)
		},
		OnDelete: c.sliceWritten,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.services, c.pods, c.nodes, c.slices}, c.events.Run)
}

func (c *Controller) serviceCame(s *corev1.Service) {
	c.triggers.Begin(cache.KeyOf(s), s)
	c.queue.Add(cache.KeyOf(s))
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

// podMatters has the services looked at that select a pod. When it is there, its last turn is what they change for.
func (c *Controller) podMatters(p, there *corev1.Pod) {
	m := p.GetMetadata()
	for _, s := range c.services.ByIndex(controller.ByNamespace, m.GetNamespace()) {
		if endpoint.Selects(s, m.GetLabels()) {
			c.triggers.Note(cache.KeyOf(s), there)
			c.queue.Add(cache.KeyOf(s))
		}
	}
}

// nodeChanged has the services looked at whose endpoints are on a node that is elsewhere now, and all that have hints
// by topology when the processors of zones changed.
func (c *Controller) nodeChanged(old, now *corev1.Node) {
	name := now.GetMetadata().GetName()
	came := old.GetMetadata() == nil || now.GetMetadata() == nil
	if now.GetMetadata() != nil &&
		(came || old.GetMetadata().GetLabels()[wanted.Zone] != now.GetMetadata().GetLabels()[wanted.Zone]) {
		for _, p := range c.pods.ByIndex(controller.ByNode, name) {
			c.podMatters(p, nil)
		}
	}
	if !came && wanted.SameShare(old, now) {
		return
	}
	c.mu.Lock()
	c.known = false
	c.mu.Unlock()
	for _, s := range c.services.List("", nil) {
		if wanted.ByTopology(s) {
			c.queue.Add(cache.KeyOf(s))
		}
	}
}

// sliceWritten has the service looked at that a slice is of: somebody else may have written it. What the controller
// wrote itself needs no change.
func (c *Controller) sliceWritten(s *discoveryv1.EndpointSlice) {
	m := s.GetMetadata()
	name := m.GetLabels()[endpoint.ServiceName]
	if m.GetLabels()[endpoint.SliceManager] == wanted.Manager && name != "" {
		c.queue.Add(cache.Key{Namespace: m.GetNamespace(), Name: name})
	}
}

// sharesNow returns the parts of zones in the processors of all nodes.
func (c *Controller) sharesNow() map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		// The mark is set before nodes are read: a change meanwhile takes it away again.
		c.known = true
		c.shares = wanted.Shares(c.nodes.List("", nil))
	}
	return c.shares
}

// reconcile brings the slices of one service up to date.
func (c *Controller) reconcile(ctx context.Context, k cache.Key) (time.Duration, error) {
	s, ok := c.services.Get(k.Namespace, k.Name)
	if !ok || !endpoint.Selecting(s) {
		c.triggers.Take(k)
		c.tell(k, nil, nil)
		return 0, nil
	}
	in := wanted.Input{
		Service: s, Pods: c.selected(s), Existing: c.existing(k), Max: maxEndpoints,
		Node: func(name string) *corev1.Node {
			n, ok := c.nodes.Get("", name)
			if !ok {
				return nil
			}
			return n
		},
	}
	if wanted.ByTopology(s) {
		in.Shares = c.sharesNow()
	}
	plan := wanted.Decide(in)
	at := c.triggers.Take(k)
	err := c.carryOut(ctx, k, plan, at)
	if err != nil && ctx.Err() == nil {
		c.triggers.Return(k, at)
	}
	if err == nil && len(plan.Missing) > 0 {
		err = fmt.Errorf("left out pods %s: nobody knows their nodes", strings.Join(plan.Missing, ", "))
	}
	if err == nil {
		c.tell(k, s, plan.Topology)
		return 0, nil
	}
	if ctx.Err() == nil && !apierrors.Is(err, apierrors.Conflict) {
		c.events.Event(s, record.Warning, "FailedToUpdateEndpointSlices", syncing,
			fmt.Sprintf("Error updating Endpoint Slices for Service %s: %v", k, err))
	}
	return 0, err
}

// selected returns the pods that a service selects.
func (c *Controller) selected(s *corev1.Service) []*corev1.Pod {
	return slices.DeleteFunc(c.pods.ByIndex(controller.ByNamespace, s.GetMetadata().GetNamespace()),
		func(p *corev1.Pod) bool { return !endpoint.Selects(s, p.GetMetadata().GetLabels()) })
}

// existing returns the slices of a service that this controller writes, without those that are being deleted.
func (c *Controller) existing(k cache.Key) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(c.slices.ByIndex(controller.ByService, k.String()), func(s *discoveryv1.EndpointSlice) bool {
		m := s.GetMetadata()
		return m.GetLabels()[endpoint.SliceManager] != wanted.Manager || m.GetDeletionTimestamp() != nil
	})
}

// carryOut does what a plan says, and waits until the cache has what was written.
func (c *Controller) carryOut(ctx context.Context, k cache.Key, plan wanted.Plan, at time.Time) error {
	for _, s := range slices.Concat(plan.Create, plan.Update) {
		trigger.Annotate(s.GetMetadata(), at)
	}
	return c.writer.Write(ctx, k.Namespace, plan.Create, plan.Update, plan.Delete)
}

// tell records what came of hints by topology, when it is something else than before.
func (c *Controller) tell(k cache.Key, s *corev1.Service, all []wanted.Topology) {
	const on, off = "TopologyAwareHintsEnabled", "TopologyAwareHintsDisabled"
	kind, reason, note := record.Normal, on, ""
	for _, t := range all {
		switch {
		case t.Refused != "":
			kind, reason, note = record.Warning, off, fmt.Sprintf("%s, addressType: %s", t.Refused, t.Family)
		case note == "":
			note = "Topology Aware Hints has been enabled, addressType: " + t.Family
		}
	}
	c.mu.Lock()
	before := c.told[k]
	if note == "" {
		delete(c.told, k)
	} else {
		c.told[k] = reason + note
	}
	c.mu.Unlock()
	switch {
	case s == nil || before == reason+note:
	case note != "":
		c.events.Event(s, kind, reason, syncing, note)
	case strings.HasPrefix(before, on):
		c.events.Event(s, record.Warning, off, syncing, "Topology Aware Hints has been disabled")
	}
}
