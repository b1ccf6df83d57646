package persistentvolume

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
)

// DefaultDirectory is where the directories of local volumes are, on nodes whose agents have none of their own for
// them, such as simulated ones.
const DefaultDirectory = "/var/lib/monoplane/volumes"

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:persistentvolume.
	Client *client.Client
	// Shared has the pods.
	Shared *controller.Shared
	// Directory is where the local volumes of classes are that do not say, on nodes that do not either; DefaultDirectory
	// by default. It is absolute.
	Directory string
	// Instance names this controller in events.
	Instance string
	// Logger is told what is deleted, and about failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller binds claims and volumes. Run starts it.
type Controller struct {
	cfg     Config
	metrics *metrics
	events  *record.Recorder
	synced  atomic.Bool

	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes *cache.Cache[*corev1.PersistentVolume]
	classes *cache.Cache[*storagev1.StorageClass]
	pods    *cache.Cache[*corev1.Pod]
	queue   *loop.Loop[item]
}

// item is a claim, or a volume, whose key has no namespace.
type item struct{ key cache.Key }

func (i item) isVolume() bool { return i.key.Namespace == "" }

// String is for logs.
func (i item) String() string { return i.key.String() }

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("persistentvolume: no client, or no shared caches")
	}
	if cfg.Directory == "" {
		cfg.Directory = DefaultDirectory
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	pods := controller.Of[*corev1.Pod](cfg.Shared, controller.ByClaim)
	return &Controller{cfg: cfg, metrics: m, pods: pods, events: record.New(record.Config{
		Events: cfg.Client.Events, Controller: "persistentvolume-controller", Instance: cfg.Instance, Logger: cfg.Logger,
	})}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("persistentvolume controller: reading the volumes, claims, classes and pods")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	// One worker: two would choose the same volume all the time, and what it costs is a few small writes.
	c.queue = loop.New(loop.Config[item]{Name: "persistentvolume", Reconcile: c.reconcile, Workers: 1,
		Logger: c.cfg.Logger})
	c.watch() // a shared cache may tell at once what it has
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.volumes, c.classes, c.pods, c.claims},
		c.events.Run, c.claims.Run, c.volumes.Run, c.classes.Run)
}

func (c *Controller) reconcile(ctx context.Context, i item) (time.Duration, error) {
	if i.isVolume() {
		return c.volume(ctx, i.key.Name)
	}
	return c.claim(ctx, i.key)
}

// lookAgain is when something is looked at again that depends on an object which the server has and the cache does
// not: if that came and goes while the watch is lost, nobody tells.
const lookAgain = 10 * time.Second
