package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/labelselector"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the pods and Jobs.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller carries out Jobs. Run starts it.
type Controller struct {
	api     *client.Client
	logger  *slog.Logger
	metrics *metrics
	jobs    *cache.Cache[*batchv1.Job]
	pods    *cache.Cache[*corev1.Pod]
	events  *record.Recorder
	control *podcontrol.Control
	// queue has Jobs, orphans has pods with the finalizer that may have no Job any more to take it.
	queue, orphans *loop.Loop[cache.Key]
	synced         atomic.Bool

	mu sync.Mutex
	// memory is what is known of Jobs besides what the caches have, by uid.
	memory map[string]*memory
}

// memory is what is known of a Job. But for pods it is used by whoever works on the Job.
type memory struct {
	// written is the resourceVersion of the last write of its status, foreign the newest one that was not ours.
	written string
	foreign uint64
	// unsure says that pods may have been made of which the answer was lost.
	unsure bool
	// released are pods that have lost their finalizer, of which the cache may not know yet.
	released map[string]bool
	backoff  plan.Backoff
	// refused is set while pods cannot be made.
	refused *refusal
	// pods is how many pods it had when it was last looked at.
	pods atomic.Int64
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("job: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	events := record.New(record.Config{Events: cfg.Client.Events, Controller: "job-controller", Logger: cfg.Logger})
	pods := controller.Of[*corev1.Pod](cfg.Shared, controller.ByController, controller.Unmanaged)
	return &Controller{
		api: cfg.Client, logger: cfg.Logger, metrics: m, pods: pods, events: events,
		jobs:    controller.Of[*batchv1.Job](cfg.Shared, controller.ByNamespace),
		control: podcontrol.New(cfg.Client.Pods, pods, events), memory: map[string]*memory{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("job controller: reading the Jobs and pods")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "job", Reconcile: c.reconcile, Logger: c.logger})
	c.orphans = loop.New(loop.Config[cache.Key]{Name: "job-orphans", Reconcile: c.free, Logger: c.logger})
	c.watch()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.events.Run(ctx) })
	synced := make(chan struct{})
	for _, queue := range []*loop.Loop[cache.Key]{c.queue, c.orphans} {
		g.Go(func() error {
			defer queue.Stop() // also when it was never run
			select {
			case <-synced:
				return queue.Run(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	g.Go(func() error {
		if err := controller.WaitForSync(ctx, c.jobs, c.pods); err != nil {
			return err
		}
		close(synced)
		c.synced.Store(true)
		return nil
	})
	return g.Wait()
}

// reconcile brings one Job forward.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	job, ok := c.jobs.Get(key.Namespace, key.Name)
	if !ok || !ours(job) {
		return 0, nil // forgotten by its deletion's handler
	}
	uid := job.GetMetadata().GetUid()
	m := c.remembered(uid)
	if err := c.search(ctx, job, m); err != nil {
		return 0, err
	}
	if err := c.settle(ctx, uid, m); err != nil {
		return 0, err
	}
	if job, ok = c.jobs.Get(key.Namespace, key.Name); !ok || job.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	if jobs.Finished(job.GetStatus()) {
		c.forget(uid)
		c.freeAll(uid)
		return 0, nil
	}
	if r := job.GetMetadata().GetResourceVersion(); r != m.written {
		m.foreign = revision(r)
	}
	seen := c.pods.Revision()
	pods, err := c.claim(ctx, job)
	if err != nil {
		return 0, err
	}
	c.prune(m, pods)
	if err := c.confirm(ctx, m, pods, seen); err != nil {
		return 0, err
	}
	began := time.Now()
	again, action, err := c.sync(ctx, job, m, pods)
	c.metrics.synced(job.GetSpec(), action, err, time.Since(began))
	return again, err
}

// revision returns a resourceVersion as a number: they grow with every write of any kind.
func revision(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ours says whether this controller carries out a Job.
func ours(job *batchv1.Job) bool {
	by := job.GetSpec().GetManagedBy()
	return by == "" || by == jobs.ControllerName
}

// settleTime is how long the cache may take to have a status that was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written of a Job and its pods.
func (c *Controller) settle(ctx context.Context, uid string, m *memory) error {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := c.jobs.WaitFor(limited, m.written); err != nil {
		return fmt.Errorf("wait for the cache of Jobs: %w", err)
	}
	return c.control.Settle(ctx, uid)
}

// claim returns the pods of a Job, after adoptions and releases.
func (c *Controller) claim(ctx context.Context, job *batchv1.Job) ([]*corev1.Pod, error) {
	own, selector := job.GetMetadata(), labelselector.OrNothing(job.GetSpec().GetSelector())
	claim := owned.Claim[*corev1.Pod]{
		Owner:     job,
		Finalizer: jobs.Tracking,
		Selects:   func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.GetMetadata().GetLabels())) },
		Live: func(ctx context.Context) (object.Object, error) {
			return c.api.Jobs.Get(ctx, &metav1.GetRequest{Namespace: own.GetNamespace(), Name: own.GetName()})
		},
		Patch: func(ctx context.Context, req *metav1.PatchRequest) (*corev1.Pod, error) {
			p, err := c.api.Pods.Patch(ctx, req)
			if err == nil {
				c.control.Wrote(own.GetUid(), p)
			}
			return p, err
		},
	}
	pods := c.pods.ByIndex(controller.ByController, own.GetUid())
	return claim.Take(ctx, append(pods, c.pods.ByIndex(controller.Unmanaged, own.GetNamespace())...))
}

// prune forgets released pods of which the cache knows, and notes how many pods there are.
func (c *Controller) prune(m *memory, pods []*corev1.Pod) {
	m.pods.Store(int64(len(pods)))
	if len(m.released) == 0 {
		return
	}
	still := map[string]bool{}
	for _, p := range pods {
		if uid := p.GetMetadata().GetUid(); m.released[uid] && plan.Tracked(p) {
			still[uid] = true
		}
	}
	m.released = still
}

func (c *Controller) remembered(uid string) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memory[uid]
	if m == nil {
		m = &memory{released: map[string]bool{}}
		c.memory[uid] = m
	}
	return m
}

func (c *Controller) forget(uid string) {
	c.control.Forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, uid)
}
