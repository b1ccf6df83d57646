package namespace

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/object/builtin"
)

// finalizer is the one that this controller removes.
const finalizer = "kubernetes"

// fieldManager is who writes, in what the server keeps about writes.
const fieldManager = "namespace-controller"

// How soon a namespace that is not empty yet is looked at again; it doubles from the first to the second.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = 5 * time.Second
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:namespace.
	Client *client.Client
	// Content lists the kinds that live in namespaces; nil means DefaultContent(Client).
	Content []Content
	// Workers is how many namespaces are emptied at once; 4 by default.
	Workers int
	// Logger is told about failures and removed namespaces; nil discards.
	Logger *slog.Logger
}

// Controller empties deleted namespaces. Run starts it.
type Controller struct {
	cfg    Config
	synced atomic.Bool

	mu    sync.Mutex
	polls map[string]time.Duration // the last pause, by uid of the namespace
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("namespace: no client")
	}
	if cfg.Content == nil {
		cfg.Content = DefaultContent(cfg.Client)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, polls: map[string]time.Duration{}}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("namespace controller: reading the namespaces")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	namespaces := cache.New(cache.Config[*corev1.Namespace]{
		Source: cache.Watch(c.cfg.Client.Namespaces.Watch), Logger: c.cfg.Logger,
	})
	queue := loop.New(loop.Config[string]{
		Name: "namespace", Reconcile: c.reconcile, Workers: c.cfg.Workers, Logger: c.cfg.Logger,
	})
	add := func(ns *corev1.Namespace) {
		if ns.GetMetadata().GetDeletionTimestamp() != nil {
			queue.Add(ns.GetMetadata().GetName())
		}
	}
	namespaces.AddHandler(cache.Handler[*corev1.Namespace]{
		OnAdd:    add,
		OnUpdate: func(_, ns *corev1.Namespace) { add(ns) },
		OnDelete: func(ns *corev1.Namespace) {
			c.forget(ns.GetMetadata().GetUid())
			if name := ns.GetMetadata().GetName(); builtin.Namespace(name) {
				queue.Add(name)
			}
		},
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return namespaces.Run(ctx) })
	g.Go(func() error { return queue.Run(ctx) })
	g.Go(func() error {
		if err := namespaces.WaitForSync(ctx); err != nil {
			return err
		}
		for _, name := range builtin.Namespaces() {
			if _, ok := namespaces.Get("", name); !ok {
				queue.Add(name)
			}
		}
		c.synced.Store(true)
		return nil
	})
	return g.Wait()
}

// reconcile brings one namespace a step further: delete, report, and when nothing is left finalize.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	ns, err := c.cfg.Client.Namespaces.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, c.restore(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	if ns.GetMetadata().GetDeletionTimestamp() == nil || !slices.Contains(ns.GetSpec().GetFinalizers(), finalizer) {
		return 0, nil
	}
	found := c.empty(ctx, name)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	ns, err = c.report(ctx, ns, found)
	if err != nil || ns == nil {
		return 0, err
	}
	if len(found.errs) > 0 {
		return 0, errors.Join(found.errs...)
	}
	if found.total() > 0 {
		return c.pause(ns.GetMetadata().GetUid()), nil
	}
	return 0, c.finalize(ctx, ns)
}

// restore makes a builtin namespace that is gone again. The server refuses to delete it, but its deletion may have
// begun before: under an older version, or by somebody at the store. It does nothing for others.
func (c *Controller) restore(ctx context.Context, name string) error {
	if !builtin.Namespace(name) {
		return nil
	}
	_, err := c.cfg.Client.Namespaces.Create(ctx, &corev1rpc.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}}, FieldManager: fieldManager,
	})
	if err == nil {
		c.cfg.Logger.Warn("a namespace that every cluster has was gone; it has been made again", "namespace", name)
	}
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return nil
	}
	return err
}

// finalize removes our finalizer, by compare-and-swap.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	done := object.Clone(ns)
	done.Spec.Finalizers = slices.DeleteFunc(done.Spec.Finalizers, func(f string) bool { return f == finalizer })
	_, err := c.cfg.Client.Namespaces.Finalize(ctx, &corev1rpc.UpdateNamespaceRequest{
		Name: ns.GetMetadata().GetName(), Object: done, FieldManager: fieldManager,
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		return err
	}
	c.forget(ns.GetMetadata().GetUid())
	c.cfg.Logger.Info("removed a namespace", "namespace", ns.GetMetadata().GetName())
	return nil
}

// pause returns how long to wait before the next look; it grows while a namespace waits.
func (c *Controller) pause(uid string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := min(max(2*c.polls[uid], minPoll), maxPoll)
	c.polls[uid] = d
	return d
}

func (c *Controller) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.polls, uid)
}
