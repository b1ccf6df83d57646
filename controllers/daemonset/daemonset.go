package daemonset

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
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/controllers/internal/history"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:daemonset.
	Client *client.Client
	// Shared has the pods, nodes and ControllerRevisions.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the pods of DaemonSets. Run starts it.
type Controller struct {
	api       *client.Client
	logger    *slog.Logger
	sets      *cache.Cache[*appsv1.DaemonSet]
	pods      *cache.Cache[*corev1.Pod]
	nodes     *cache.Cache[*corev1.Node]
	revisions *cache.Cache[*appsv1.ControllerRevision]
	events    *record.Recorder
	control   *podcontrol.Control
	history   *history.Control
	queue     *loop.Loop[cache.Key]
	synced    atomic.Bool

	mu sync.Mutex
	// memory is what is known of DaemonSets besides what the caches have, by uid.
	memory map[string]*memory
}

// memory is what is known of a DaemonSet. Only who reconciles it looks into it.
type memory struct {
	// written is the resourceVersion of the last write of its status.
	written string
	// failed has the nodes on which its pods failed.
	failed plan.Backoff
	// refused is set while pods cannot be made.
	refused *refusal
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("daemonset: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	events := record.New(record.Config{Events: cfg.Client.Events, Controller: "daemonset-controller", Logger: cfg.Logger})
	pods := controller.Of[*corev1.Pod](cfg.Shared, controller.ByController, controller.Unmanaged)
	revisions := controller.Of[*appsv1.ControllerRevision](cfg.Shared, controller.ByController, controller.Unmanaged)
	return &Controller{
		api: cfg.Client, logger: cfg.Logger, pods: pods, nodes: controller.Of[*corev1.Node](cfg.Shared),
		revisions: revisions, events: events,
		sets: cache.New(cache.Config[*appsv1.DaemonSet]{
			Source: cache.Watch(cfg.Client.DaemonSets.Watch), Logger: cfg.Logger,
			Indexes: controller.Indexes[*appsv1.DaemonSet](controller.ByNamespace),
		}),
		control: podcontrol.New(cfg.Client.Pods, pods, events),
		history: history.New(cfg.Client.ControllerRevisions, revisions),
		memory:  map[string]*memory{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("daemonset controller: reading the daemon sets, nodes and pods")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "daemonset", Reconcile: c.reconcile, Logger: c.logger})
	c.watch()
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.sets, c.pods, c.nodes, c.revisions},
		c.events.Run, c.sets.Run)
}

// reconcile takes one DaemonSet a step further.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	d, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil // forgotten by its deletion's handler
	}
	m, uid := c.remembered(d), d.GetMetadata().GetUid()
	if err := c.settle(ctx, uid, m); err != nil {
		return 0, err
	}
	if d, ok = c.sets.Get(key.Namespace, key.Name); !ok || d.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	if d.GetMetadata().GetDeletionTimestamp() != nil {
		return 0, nil // its revisions may be gone, by which its pods would be judged
	}
	selector := labelselector.OrNothing(d.GetSpec().GetSelector())
	pods, err := c.claim(ctx, d, selector)
	if err != nil {
		return 0, err
	}
	known, err := c.revise(ctx, d, selector)
	if err != nil {
		return 0, err
	}
	return c.step(ctx, d, m, pods, known)
}

// settleTime is how long the cache may take to have a status that was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written of a DaemonSet, its pods and its revisions.
func (c *Controller) settle(ctx context.Context, uid string, m *memory) error {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := c.sets.WaitFor(limited, m.written); err != nil {
		return fmt.Errorf("wait for the cache: %w", err)
	}
	return errors.Join(c.control.Settle(ctx, uid), c.history.Settle(ctx, uid))
}

// claim returns the pods of a DaemonSet, after adoptions and releases.
func (c *Controller) claim(ctx context.Context, d *appsv1.DaemonSet, selector labels.Selector) ([]*corev1.Pod, error) {
	own := d.GetMetadata()
	claim := owned.Claim[*corev1.Pod]{
		Owner:   d,
		Selects: func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.GetMetadata().GetLabels())) },
		Live:    c.live(d),
		Patch: func(ctx context.Context, req *metav1.PatchRequest) (*corev1.Pod, error) {
			p, err := c.api.Pods.Patch(ctx, req)
			if err == nil {
				c.control.Wrote(own.GetUid(), p)
			}
			return p, err
		},
	}
	return claim.Take(ctx, append(c.pods.ByIndex(controller.ByController, own.GetUid()),
		c.pods.ByIndex(controller.Unmanaged, own.GetNamespace())...))
}

// live reads a DaemonSet from the server.
func (c *Controller) live(d *appsv1.DaemonSet) func(context.Context) (object.Object, error) {
	m := d.GetMetadata()
	return func(ctx context.Context) (object.Object, error) {
		return c.api.DaemonSets.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
	}
}

func (c *Controller) remembered(d *appsv1.DaemonSet) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := d.GetMetadata().GetUid()
	m := c.memory[uid]
	if m == nil {
		m = &memory{}
		c.memory[uid] = m
	}
	return m
}

func (c *Controller) forget(uid string) {
	c.control.Forget(uid)
	c.history.Forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, uid)
}
