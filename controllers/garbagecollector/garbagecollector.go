package garbagecollector

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/api/services"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/generic"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/garbagecollector/graph"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// The bounds of the collector's work. Kubernetes has the same number of workers, and the same longest delay.
const (
	defaultWorkers = 20
	minDelay       = 5 * time.Millisecond
	maxDelay       = 1000 * time.Second
)

// unseen is how soon an object is looked at again whose owner is there and which no watch has shown: it may be gone
// before one does.
const unseen = time.Second

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:garbage-collector.
	Client *client.Client
	// Workers is how many objects are looked at at once; 20 by default.
	Workers int
	// Logger is told about failures and what is deleted; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller is the collector. Run starts it.
type Controller struct {
	cfg     Config
	kinds   []*generic.Client
	byName  map[kindName]*generic.Client
	graph   *graph.Graph
	gone    absent
	events  *record.Recorder
	metrics *metrics
	queue   *loop.Loop[graph.UID]
	// reading is how many kinds have not been read yet.
	reading atomic.Int32
	synced  chan struct{}
}

// kindName is what references to owners call a kind.
type kindName struct{ apiVersion, kind string }

// collected says whether objects of a service's kind are watched. Events own nothing, and go by themselves.
func collected(s *service.Service) bool {
	return s.Stores() && s.Events != nil && s.Kind != corev1.EventKind
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("garbagecollector: no client")
	}
	if cfg.Workers <= 0 {
		cfg.Workers = defaultWorkers
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, graph: graph.New(), byName: map[kindName]*generic.Client{}, synced: make(chan struct{}),
		events: record.New(record.Config{
			Events: cfg.Client.Events, Controller: "garbage-collector-controller", Logger: cfg.Logger,
		}),
	}
	for _, s := range services.All() {
		if !collected(s) {
			continue
		}
		k, err := generic.New(s, cfg.Client.Conn())
		if err != nil {
			return nil, err
		}
		c.kinds = append(c.kinds, k)
		c.byName[kindName{s.Kind.APIVersion(), s.Kind.Kind}] = k
	}
	for _, s := range services.All() {
		if stored := c.stored(s.Kind); stored != nil {
			c.byName[kindName{s.Kind.APIVersion(), s.Kind.Kind}] = stored
		}
	}
	c.reading.Store(int32(len(c.kinds))) //nolint:gosec // not that many
	var err error
	c.metrics, err = newMetrics(cfg.Registerer, c.graph.Len)
	return c, err
}

// stored returns the client of the kind whose objects a kind shows in another version, in which an owner may be named,
// too; nil for a kind that is no such view.
func (c *Controller) stored(view *object.Kind) *generic.Client {
	if !view.View {
		return nil
	}
	for _, k := range c.kinds {
		if k.Kind().Group == view.Group && k.Kind().Kind == view.Kind {
			return k
		}
	}
	return nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if c.reading.Load() > 0 {
		return errors.New("garbage-collector: reading the objects of all kinds")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[graph.UID]{
		Name: "garbage-collector", Logger: c.cfg.Logger, Reconcile: c.look, Workers: c.cfg.Workers,
		MinDelay: minDelay, MaxDelay: maxDelay,
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.events.Run(ctx) })
	for _, k := range c.kinds {
		feed := cache.NewFeed(cache.Config[object.Object]{
			Source: k.Watch, Logger: c.cfg.Logger,
			OnLost: func(err error) {
				if ctx.Err() == nil && !errors.Is(err, io.EOF) {
					c.metrics.lost.Inc()
				}
			},
		}, cache.Sink[object.Object](&sink{c: c, kind: k.Kind()}))
		g.Go(func() error { return feed.Run(ctx) })
	}
	g.Go(func() error {
		// Before all is known nearly everything would have to be looked at.
		defer c.queue.Stop() // also when it was never run
		select {
		case <-c.synced:
		case <-ctx.Done():
			return ctx.Err()
		}
		return c.queue.Run(ctx)
	})
	return g.Wait()
}

func (c *Controller) enqueue(look []graph.UID) {
	for _, uid := range look {
		c.queue.Add(uid)
	}
}

// sink tells the graph what the watch of a kind shows.
type sink struct {
	c    *Controller
	kind *object.Kind
	// seen is what there is of the kind while everything is read, nil otherwise.
	seen map[graph.UID]struct{}
	// begun says that the graph has objects of the kind already, again that it had when the reading began; ended that
	// everything was read once.
	begun, again, ended bool
}

func (s *sink) Begin() {
	s.seen = map[graph.UID]struct{}{}
	s.begun, s.again = true, s.begun
}

func (s *sink) Upsert(o object.Object) {
	m := o.GetMetadata()
	if s.seen != nil {
		s.seen[graph.UIDOf(m.GetUid())] = struct{}{}
	}
	s.c.enqueue(s.c.graph.Set(s.kind, m))
}

func (s *sink) Remove(o object.Object) {
	uid := graph.UIDOf(o.GetMetadata().GetUid())
	if s.seen != nil {
		delete(s.seen, uid)
	}
	s.c.enqueue(s.c.graph.Delete(uid))
}

func (s *sink) End() {
	if s.again {
		s.c.enqueue(s.c.graph.Keep(s.kind, s.seen))
	}
	s.seen = nil
	if s.ended {
		return
	}
	s.ended = true
	if s.c.reading.Add(-1) == 0 {
		close(s.c.synced)
	}
}

func (s *sink) Reach(uint64) {}
