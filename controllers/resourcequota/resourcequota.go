// Package resourcequota is the controller that writes down what is used of each ResourceQuota. Nobody is refused
// anything because of what it writes: the server goes by the objects that there are (package admission/charge).
//
//	quota comes, its limits change ─────────────┐
//	object of a kind that it counts comes,      ├──► list what the quota counts ──► status (compare-and-swap)
//	changes, goes; a pod is overdue in going ───┤
//	five minutes have passed ───────────────────┘
//
// A kind is watched while some quota counts it, and not otherwise: without quotas the controller watches nothing but
// quotas. Changes that come fast are counted together, the more of them the more objects there are to count.
//
// What it guarantees: when nothing changes any more, the status is true of the objects as they are. It is written only
// when it changes.
package resourcequota

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/generic"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/quota"
	"monoplane.dev/rules/semantic"
)

const (
	// resync is after how long everything is counted again.
	resync = 5 * time.Minute
	// perObject is for how long, for each object that was counted, the next count waits for more changes.
	perObject = 20 * time.Microsecond
	// manager is what the status is written as.
	manager = "resourcequota-controller"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:resourcequota-controller.
	Client *client.Client
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller counts. Run starts it.
type Controller struct {
	cfg    Config
	kinds  []*generic.Client
	quotas *cache.Cache[*corev1.ResourceQuota]
	queue  *loop.Loop[cache.Key]
	synced atomic.Bool

	mu sync.Mutex
	// feeds end the watches of kinds.
	feeds map[*object.Kind]context.CancelFunc
	// counted is how many objects were counted last, by quota.
	counted map[cache.Key]int
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("resourcequota: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{cfg: cfg, feeds: map[*object.Kind]context.CancelFunc{}, counted: map[cache.Key]int{}}
	for _, s := range services.All() {
		if !counted(s) {
			continue
		}
		k, err := generic.New(s, cfg.Client.Conn())
		if err != nil {
			return nil, err
		}
		c.kinds = append(c.kinds, k)
	}
	c.quotas = cache.New(cache.Config[*corev1.ResourceQuota]{
		Source: cache.Watch(cfg.Client.ResourceQuotas.Watch), Logger: cfg.Logger,
		Indexes: controller.Indexes[*corev1.ResourceQuota](controller.ByNamespace),
	})
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("resourcequota controller: reading the quotas")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "resourcequota", Logger: c.cfg.Logger, Reconcile: c.reconcile})
	changed := make(chan struct{}, 1)
	look := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	c.quotas.AddHandler(cache.Handler[*corev1.ResourceQuota]{
		OnAdd: func(q *corev1.ResourceQuota) { look(); c.queue.Add(cache.KeyOf(q)) },
		OnUpdate: func(old, q *corev1.ResourceQuota) {
			if !semantic.Equal(old.GetSpec(), q.GetSpec()) {
				look()
			}
			c.queue.Add(cache.KeyOf(q))
		},
		OnDelete: func(q *corev1.ResourceQuota) { look(); c.forget(cache.KeyOf(q)) },
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.quotas.Run(ctx) })
	g.Go(func() error {
		defer c.queue.Stop() // also when it was never run
		if err := controller.WaitForSync(ctx, c.quotas); err != nil {
			return err
		}
		c.synced.Store(true)
		g.Go(func() error { return c.watch(ctx, g, changed) })
		return c.queue.Run(ctx)
	})
	return g.Wait()
}

// watch keeps those kinds watched that quotas count.
func (c *Controller) watch(ctx context.Context, g *errgroup.Group, changed <-chan struct{}) error {
	for {
		quotas := c.quotas.List("", nil)
		for _, k := range c.kinds {
			wanted := false
			for _, q := range quotas {
				wanted = wanted || quota.LimitsKind(q.GetSpec(), k.Kind())
			}
			end, watched := c.feeds[k.Kind()]
			switch {
			case wanted && !watched:
				one, cancel := context.WithCancel(ctx)
				c.feeds[k.Kind()] = cancel
				feed := cache.NewFeed(cache.Config[object.Object]{Source: k.Watch, Logger: c.cfg.Logger},
					cache.Sink[object.Object](&sink{c: c, kind: k.Kind()}))
				g.Go(func() error {
					_ = feed.Run(one) // it ends with its context, which may be before ours
					return ctx.Err()
				})
			case watched && !wanted:
				end()
				delete(c.feeds, k.Kind())
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, end := range c.feeds {
				end()
			}
			return ctx.Err()
		}
	}
}

// sink has the quotas counted that count objects of a kind that come, change or go.
type sink struct {
	c    *Controller
	kind *object.Kind
}

// Begin does nothing: whatever was missed is counted when everything was read.
func (s *sink) Begin() {}

// Upsert has the quotas of an object's namespace counted.
func (s *sink) Upsert(o object.Object) { s.c.touched(s.kind, o.GetMetadata().GetNamespace()) }

// Remove has the quotas of an object's namespace counted.
func (s *sink) Remove(o object.Object) { s.c.touched(s.kind, o.GetMetadata().GetNamespace()) }

// End has all quotas counted: objects may have gone while nobody watched.
func (s *sink) End() {
	for _, q := range s.c.quotas.List("", nil) {
		s.c.again(s.kind, q)
	}
}

// Reach does nothing: each count reads what there is.
func (s *sink) Reach(uint64) {}

// touched has the quotas of a namespace counted that count a kind.
func (c *Controller) touched(kind *object.Kind, namespace string) {
	for _, q := range c.quotas.ByIndex(controller.ByNamespace, namespace) {
		c.again(kind, q)
	}
}

func (c *Controller) again(kind *object.Kind, q *corev1.ResourceQuota) {
	if !quota.LimitsKind(q.GetSpec(), kind) {
		return
	}
	k := cache.KeyOf(q)
	c.mu.Lock()
	wait := time.Duration(c.counted[k]) * perObject
	c.mu.Unlock()
	c.queue.AddAfter(k, wait)
}

func (c *Controller) forget(k cache.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.counted, k)
}

// reconcile counts one quota.
func (c *Controller) reconcile(ctx context.Context, k cache.Key) (time.Duration, error) {
	q, ok := c.quotas.Get(k.Namespace, k.Name)
	if !ok {
		return 0, nil
	}
	used, n, again, err := c.count(ctx, q)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.counted[k] = n
	c.mu.Unlock()
	hard := quota.UsageOf(q.GetSpec().GetHard())
	status := q.GetStatus()
	if quota.UsageOf(status.GetHard()).Equal(hard) && quota.UsageOf(status.GetUsed()).Equal(used) {
		return again, nil
	}
	m := q.GetMetadata().Shallow()
	m.ManagedFields = nil
	_, err = c.cfg.Client.ResourceQuotas.UpdateStatus(ctx, &corev1rpc.UpdateResourceQuotaRequest{
		Namespace: k.Namespace, Name: k.Name, FieldManager: manager,
		Object: &corev1.ResourceQuota{
			Metadata: m, Spec: q.GetSpec(),
			Status: &corev1.ResourceQuotaStatus{Hard: hard.Amounts(), Used: used.Amounts()},
		},
	})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	return again, err
}

// count adds up what is used of a quota. It says how many objects it looked at, and when to count again though nothing
// changes.
func (c *Controller) count(
	ctx context.Context, q *corev1.ResourceQuota,
) (used quota.Usage, n int, again time.Duration, err error) {
	now := time.Now()
	used, again = quota.None(q.GetSpec()), resync
	for _, k := range c.kinds {
		if !quota.LimitsKind(q.GetSpec(), k.Kind()) {
			continue
		}
		all, err := k.List(ctx, &metav1.ListRequest{Namespace: q.GetMetadata().GetNamespace()})
		if err != nil {
			return nil, 0, 0, err
		}
		n += all.Len()
		for i := range all.Len() {
			o := all.At(i)
			if due := quota.Due(o.GetMetadata()); due.After(now) {
				again = min(again, due.Sub(now)+time.Second)
			}
			if quota.Counts(q.GetSpec(), o) {
				used.Add(quota.Of(o, now).Only(used))
			}
		}
	}
	return used, n, again, nil
}
