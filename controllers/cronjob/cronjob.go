package cronjob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:cronjob.
	Client *client.Client
	// Shared has the Jobs.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller makes the Jobs of CronJobs. Run starts it.
type Controller struct {
	api      *client.Client
	logger   *slog.Logger
	cronJobs *cache.Cache[*batchv1.CronJob]
	jobs     *cache.Cache[*batchv1.Job]
	events   *record.Recorder
	queue    *loop.Loop[cache.Key]
	synced   atomic.Bool

	mu sync.Mutex
	// written is what the caches may not have yet, by the uid of the CronJob.
	written map[string]writes
	// changed is when the schedule of a CronJob was seen to change, by its uid.
	changed map[string]time.Time
}

// writes are the resourceVersions of the last writes for a CronJob; empty for none.
type writes struct{ status, job string }

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("cronjob: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{
		api: cfg.Client, logger: cfg.Logger, jobs: controller.Of[*batchv1.Job](cfg.Shared, controller.ByController),
		cronJobs: cache.New(cache.Config[*batchv1.CronJob]{
			Source: cache.Watch(cfg.Client.CronJobs.Watch), Logger: cfg.Logger,
		}),
		events: record.New(record.Config{
			Events: cfg.Client.Events, Controller: "cronjob-controller", Logger: cfg.Logger,
		}),
		written: map[string]writes{}, changed: map[string]time.Time{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("cronjob controller: reading the cron jobs and jobs")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "cronjob", Reconcile: c.reconcile, Logger: c.logger})
	add := func(o *batchv1.CronJob) { c.queue.Add(cache.KeyOf(o)) }
	c.cronJobs.AddHandler(cache.Handler[*batchv1.CronJob]{
		OnAdd: add, OnUpdate: func(old, o *batchv1.CronJob) {
			c.noteChange(old, o)
			add(o)
		},
		OnDelete: func(o *batchv1.CronJob) { c.forget(o.GetMetadata().GetUid()) },
	})
	c.jobs.AddHandler(cache.Handler[*batchv1.Job]{
		OnAdd: c.jobChanged, OnUpdate: func(_, j *batchv1.Job) { c.jobChanged(j) }, OnDelete: c.jobChanged,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.cronJobs, c.jobs}, c.events.Run, c.cronJobs.Run)
}

// noteChange notes that a CronJob has another schedule from now on.
func (c *Controller) noteChange(old, o *batchv1.CronJob) {
	uid, before, after := o.GetMetadata().GetUid(), old.GetSpec(), o.GetSpec()
	if old.GetMetadata().GetUid() != uid ||
		before.GetSchedule() == after.GetSchedule() && before.GetTimeZone() == after.GetTimeZone() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[uid] = time.Now()
}

// jobChanged has the CronJob looked at that manages a Job.
func (c *Controller) jobChanged(j *batchv1.Job) {
	if r := controller.ManagerOf(j); r != nil && owned.IsManager(r, batchv1.CronJobKind) {
		c.queue.Add(cache.Key{Namespace: j.GetMetadata().GetNamespace(), Name: r.GetName()})
	}
}

// longestWait is how long the clock is not looked at: somebody may have set it, or the machine may have slept.
const longestWait = 10 * time.Minute

// reconcile looks at one CronJob.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	o, ok := c.cronJobs.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil // forgotten by its deletion's handler
	}
	uid := o.GetMetadata().GetUid()
	if err := c.settle(ctx, uid); err != nil {
		return 0, err
	}
	if o, ok = c.cronJobs.Get(key.Namespace, key.Name); !ok || o.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	l := newLook(c, o, c.jobs.ByIndex(controller.ByController, uid))
	c.mu.Lock()
	l.changed = c.changed[uid]
	c.mu.Unlock()
	again, err := l.run(ctx)
	return min(again, longestWait), errors.Join(err, c.publish(ctx, l))
}

// publish writes the status, unless it is there.
func (c *Controller) publish(ctx context.Context, l *look) error {
	if proto.Equal(l.status, l.o.GetStatus()) {
		return nil
	}
	next := l.o.Shallow()
	next.Status = l.status
	out, err := c.api.CronJobs.UpdateStatus(ctx, &batchv1rpc.UpdateCronJobRequest{Object: next})
	if err != nil {
		return err
	}
	c.wrote(l.o, func(w *writes) { w.status = out.GetMetadata().GetResourceVersion() })
	return nil
}

// settleTime is how long the caches may take to have what was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written for a CronJob.
func (c *Controller) settle(ctx context.Context, uid string) error {
	c.mu.Lock()
	w := c.written[uid]
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var errs []error
	if w.status != "" {
		errs = append(errs, c.cronJobs.WaitFor(limited, w.status))
	}
	if w.job != "" {
		errs = append(errs, c.jobs.WaitFor(limited, w.job))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("wait for the caches: %w", err)
	}
	return nil
}

// wrote notes what was written for a CronJob.
func (c *Controller) wrote(o *batchv1.CronJob, note func(*writes)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.written[o.GetMetadata().GetUid()]
	note(&w)
	c.written[o.GetMetadata().GetUid()] = w
}

func (c *Controller) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
	delete(c.changed, uid)
}
