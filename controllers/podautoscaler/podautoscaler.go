package podautoscaler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	autoscalingv2rpc "monoplane.dev/api/autoscaling/v2/rpc"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/podautoscaler/pace"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:horizontal-pod-autoscaler.
	Client *client.Client
	// Shared has the pods.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller scales objects. Run starts it.
type Controller struct {
	api         *client.Client
	logger      *slog.Logger
	autoscalers *cache.Cache[*autoscalingv2.HorizontalPodAutoscaler]
	pods        *cache.Cache[*corev1.Pod]
	scales      *scales
	events      *record.Recorder
	queue       *loop.Loop[cache.Key]
	synced      atomic.Bool

	mu sync.Mutex
	// memory is what is known of autoscalers besides what the cache has, by key.
	memory map[cache.Key]*memory
}

// memory is what is known of an autoscaler. Only the worker that has its key reads and writes it, but for selector.
type memory struct {
	// uid is whose memory it is.
	uid     string
	history pace.History
	// written is the resourceVersion of the last write of the status.
	written string
	// selector is the one of its target, which mu of the controller guards: others look whether they share pods.
	selector labels.Selector
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("podautoscaler: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{
		api: cfg.Client, logger: cfg.Logger, pods: controller.Of[*corev1.Pod](cfg.Shared, controller.ByNamespace),
		scales: newScales(cfg.Client.Conn()),
		autoscalers: cache.New(cache.Config[*autoscalingv2.HorizontalPodAutoscaler]{
			Source: cache.Watch(cfg.Client.HorizontalPodAutoscalers.Watch), Logger: cfg.Logger,
		}),
		events: record.New(record.Config{Events: cfg.Client.Events, Controller: "horizontal-pod-autoscaler",
			Logger: cfg.Logger}),
		memory: map[cache.Key]*memory{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("horizontal pod autoscaler: reading the autoscalers and pods")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{
		Name: "horizontal-pod-autoscaler", Reconcile: c.reconcile, Logger: c.logger,
	})
	add := func(o *autoscalingv2.HorizontalPodAutoscaler) { c.queue.Add(cache.KeyOf(o)) }
	c.autoscalers.AddHandler(cache.Handler[*autoscalingv2.HorizontalPodAutoscaler]{
		OnAdd: add,
		OnUpdate: func(old, o *autoscalingv2.HorizontalPodAutoscaler) {
			if !proto.Equal(old.GetSpec(), o.GetSpec()) {
				add(o)
			}
		},
		OnDelete: add,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.autoscalers, c.pods},
		c.events.Run, c.autoscalers.Run)
}

// Period is the time between two looks at an autoscaler.
const Period = 15 * time.Second

// settleTime is how long the cache may take to have a status that was written.
const settleTime = 30 * time.Second

// reconcile looks at one autoscaler.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	m := c.remember(key)
	if m.written != "" {
		limited, cancel := context.WithTimeout(ctx, settleTime)
		err := c.autoscalers.WaitFor(limited, m.written)
		cancel()
		if err != nil {
			return 0, err
		}
	}
	o, ok := c.autoscalers.Get(key.Namespace, key.Name)
	if !ok {
		c.forget(key)
		return 0, nil
	}
	if uid := o.GetMetadata().GetUid(); m.uid != uid {
		c.forget(key) // another of its name knows nothing of it
		m = c.remember(key)
		m.uid = uid
	}
	l := newLook(c, o, m)
	retry := l.run(ctx)
	if err := c.publish(ctx, l); err != nil {
		return 0, err
	}
	return Period, retry
}

// publish writes the status, unless it is there.
func (c *Controller) publish(ctx context.Context, l *look) error {
	if proto.Equal(l.status, l.o.GetStatus()) {
		return nil
	}
	next := l.o.Shallow()
	next.Status = l.status
	out, err := c.api.HorizontalPodAutoscalers.UpdateStatus(ctx,
		&autoscalingv2rpc.UpdateHorizontalPodAutoscalerRequest{Object: next})
	if err != nil {
		c.events.Event(l.o, record.Warning, "FailedUpdateStatus", "UpdatingStatus", err.Error())
		return err
	}
	l.memory.written = out.GetMetadata().GetResourceVersion()
	return nil
}

func (c *Controller) remember(key cache.Key) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memory[key]
	if m == nil {
		m = &memory{}
		c.memory[key] = m
	}
	return m
}

func (c *Controller) forget(key cache.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, key)
}
