// Package loop runs what controllers have in common: a rate-limited work queue of keys and workers that reconcile
// them.
//
// A key is never worked on by two workers at once; keys added meanwhile are worked on again. A failed key comes
// back after a delay that doubles each time.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"monoplane.dev/apierrors"
	"monoplane.dev/controllers/controller"
)

// Config describes a loop.
type Config[K comparable] struct {
	// Name is used in logs and metrics.
	Name string
	// Reconcile brings one key to where it should be. It is called again after the duration it returns, when that
	// is positive, and after a growing delay when it fails.
	Reconcile func(ctx context.Context, key K) (again time.Duration, err error)
	// Workers is how many keys are worked on at once; 4 by default.
	Workers int
	// MinDelay and MaxDelay bound the delay after failures; 100 ms and 30 s by default.
	MinDelay, MaxDelay time.Duration
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Loop is a work queue with its workers.
type Loop[K comparable] struct {
	cfg   Config[K]
	queue workqueue.TypedRateLimitingInterface[K]
	// figures are for whoever asks for metrics.
	figures *figures
}

// New returns a loop. Run, Serve or Stop must follow, since the queue holds goroutines.
func New[K comparable](cfg Config[K]) *Loop[K] {
	if cfg.Workers <= 0 {
		cfg.Workers = 4
	}
	if cfg.MinDelay <= 0 {
		cfg.MinDelay = 100 * time.Millisecond
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](cfg.MinDelay, cfg.MaxDelay)
	f := newFigures(cfg.Name, cfg.Workers)
	return &Loop[K]{cfg: cfg, figures: f, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[K]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
				Name: cfg.Name, MetricsProvider: f,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
					Name: cfg.Name, MetricsProvider: f, Clock: tickless{},
				}),
			}),
		})}
}

// Add has key reconciled soon.
func (l *Loop[K]) Add(key K) { l.queue.Add(key) }

// AddAfter has key reconciled after a while, or before when somebody else asks for it.
func (l *Loop[K]) AddAfter(key K, d time.Duration) { l.queue.AddAfter(key, d) }

// Run works until ctx ends, and returns ctx's error when all workers have stopped.
func (l *Loop[K]) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, l.queue.ShutDown)
	defer stop()
	if r := controller.Registerer(ctx); r != nil {
		unregister, err := l.figures.register(r)
		defer unregister()
		if err != nil {
			return fmt.Errorf("metrics of the work queue %s: %w", l.cfg.Name, err)
		}
	}
	var workers sync.WaitGroup
	for i := range l.cfg.Workers {
		workers.Go(func() {
			for {
				key, shutdown := l.queue.Get()
				if shutdown {
					return
				}
				l.figures.since[i].Store(time.Now().UnixNano())
				if ctx.Err() == nil {
					l.work(ctx, key)
				}
				l.figures.since[i].Store(0)
				l.queue.Done(key)
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// Serve runs what feeds the caches of a controller, and the workers once these have been read, which it notes in
// synced. It works until ctx ends, and returns ctx's error, or the first one of what feeds.
func (l *Loop[K]) Serve(
	ctx context.Context, synced *atomic.Bool, caches []controller.Synced, feeds ...func(context.Context) error,
) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, feed := range feeds {
		g.Go(func() error { return feed(ctx) })
	}
	g.Go(func() error {
		defer l.Stop() // also when it was never run
		if err := controller.WaitForSync(ctx, caches...); err != nil {
			return err
		}
		synced.Store(true)
		return l.Run(ctx)
	})
	return g.Wait()
}

// Stop ends a loop that was never run.
func (l *Loop[K]) Stop() { l.queue.ShutDown() }

func (l *Loop[K]) work(ctx context.Context, key K) {
	again, err := l.cfg.Reconcile(ctx, key)
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		if !lost(err) && !l.passing(key, err) && !errors.Is(err, context.Canceled) {
			l.cfg.Logger.Warn("reconcile failed", "controller", l.cfg.Name, "key", key, "error", err)
		}
		l.queue.AddRateLimited(key)
	case again > 0:
		l.queue.Forget(key)
		l.queue.AddAfter(key, again)
	default:
		l.queue.Forget(key)
	}
}

// goneTries is how many times in a row something may not be found before that is told.
const goneTries = 3

// passing reports whether the error may come of an object that has just gone, such as the owner of what is reconciled,
// and of which the cache does not know that yet, or comes of a namespace that goes with all that is in it.
func (l *Loop[K]) passing(key K, err error) bool {
	return apierrors.Is(err, apierrors.NotFound) && l.queue.NumRequeues(key) < goneTries || apierrors.NamespaceGoes(err)
}

// lost says that a race was lost to another writer, which is the normal course of things.
func lost(err error) bool { return apierrors.Is(err, apierrors.Conflict) || apierrors.OtherObject(err) }
