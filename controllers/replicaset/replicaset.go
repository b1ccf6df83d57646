package replicaset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
)

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the pods and ReplicaSets.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the pods of the objects of a kind. Run starts it.
type Controller[T object.Object] struct {
	*machine[T]

	api    *client.Client
	logger *slog.Logger
	// own says that the cache of objects is this controller's alone, which feeds it.
	own     bool
	pods    *cache.Cache[*corev1.Pod]
	events  *record.Recorder
	control *podcontrol.Control
	queue   *loop.Loop[cache.Key]
	synced  atomic.Bool

	mu sync.Mutex
	// memory is what is known of objects besides what the caches have, by uid.
	memory map[string]*memory
}

// memory is what is known of an object.
type memory struct {
	// written is the resourceVersion of the last write of its status.
	written string
	// refused is set while pods cannot be made.
	refused *refusal
}

// New returns the controller of ReplicaSets.
func New(cfg Config) (*Controller[*appsv1.ReplicaSet], error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return newController(cfg, replicaSets(cfg.Client, cfg.Shared), false), nil
}

// NewForReplicationControllers returns the controller of ReplicationControllers.
func NewForReplicationControllers(cfg Config) (*Controller[*corev1.ReplicationController], error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	objects := cache.New(cache.Config[*corev1.ReplicationController]{
		Source: cache.Watch(cfg.Client.ReplicationControllers.Watch), Logger: cfg.Logger,
		Indexes: controller.Indexes[*corev1.ReplicationController](controller.ByNamespace),
	})
	return newController(cfg, replicationControllers(cfg.Client, objects), true), nil
}

func (cfg *Config) complete() error {
	if cfg.Client == nil || cfg.Shared == nil {
		return errors.New("replicaset: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func newController[T object.Object](cfg Config, m *machine[T], own bool) *Controller[T] {
	events := record.New(record.Config{Events: cfg.Client.Events, Controller: m.reporter, Logger: cfg.Logger})
	pods := controller.Of[*corev1.Pod](cfg.Shared, controller.ByController, controller.Unmanaged)
	return &Controller[T]{
		machine: m, api: cfg.Client, logger: cfg.Logger, own: own, pods: pods, events: events,
		control: podcontrol.New(cfg.Client.Pods, pods, events), memory: map[string]*memory{},
	}
}

// Ready returns nil once the controller works.
func (c *Controller[T]) Ready() error {
	if !c.synced.Load() {
		return fmt.Errorf("%s controller: reading the pods and what keeps them", c.name)
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller[T]) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: c.name, Reconcile: c.reconcile, Logger: c.logger})
	c.watch()
	feeds := []func(context.Context) error{c.events.Run}
	if c.own {
		feeds = append(feeds, c.objects.Run)
	}
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.objects, c.pods}, feeds...)
}

// reconcile brings one object to where it should be.
func (c *Controller[T]) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	o, ok := c.objects.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil // forgotten by its deletion's handler
	}
	m, uid := c.remembered(o), o.GetMetadata().GetUid()
	if err := c.settle(ctx, o, m); err != nil {
		return 0, err
	}
	if o, ok = c.objects.Get(key.Namespace, key.Name); !ok || o.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	pods, err := c.claim(ctx, o)
	if err != nil {
		return 0, err
	}
	return c.manage(ctx, o, m, pods)
}

// settleTime is how long the cache may take to have a status that was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written of an object and its pods.
func (c *Controller[T]) settle(ctx context.Context, o T, m *memory) error {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := c.objects.WaitFor(limited, m.written); err != nil {
		return fmt.Errorf("wait for the cache: %w", err)
	}
	return c.control.Settle(ctx, o.GetMetadata().GetUid())
}

// claim returns the pods of an object, after adoptions and releases.
func (c *Controller[T]) claim(ctx context.Context, o T) ([]*corev1.Pod, error) {
	own, selector := o.GetMetadata(), c.selector(o)
	claim := owned.Claim[*corev1.Pod]{
		Owner:   o,
		Selects: func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.GetMetadata().GetLabels())) },
		Live: func(ctx context.Context) (object.Object, error) {
			return c.get(ctx, getRequest(own))
		},
		Patch: c.patchPod(own.GetUid()),
	}
	pods := c.pods.ByIndex(controller.ByController, own.GetUid())
	for _, p := range c.pods.ByIndex(controller.Unmanaged, own.GetNamespace()) {
		if availability.Active(p) {
			pods = append(pods, p)
		}
	}
	return claim.Take(ctx, pods)
}

func (c *Controller[T]) remembered(o T) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := o.GetMetadata().GetUid()
	m := c.memory[uid]
	if m == nil {
		m = &memory{}
		c.memory[uid] = m
	}
	return m
}

func (c *Controller[T]) forget(uid string) {
	c.control.Forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, uid)
}
