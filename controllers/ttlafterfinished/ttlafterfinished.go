// Package ttlafterfinished is the controller that deletes Jobs which have ended, ttlSecondsAfterFinished after they
// did, and their pods with them.
//
// What it guarantees: the Job is read live before it is deleted, and goes only as it was read then: one that was
// changed, or another of its name, stays. Finalizers are honoured. What it does not do: it looks at no Job without
// ttlSecondsAfterFinished, and at no pods.
package ttlafterfinished

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/rules/jobs"
	"monoplane.dev/rules/propagation"
	"monoplane.dev/rules/rights"

	batchv1 "monoplane.dev/api/batch/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name:   "ttl-after-finished",
		Grants: []rights.Grant{{Verbs: "get delete", Resources: "jobs"}},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger, Registerer: e.Registerer})
		},
	}
}

// Config describes a controller.
type Config struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared has the Jobs.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller deletes Jobs. Run starts it.
type Controller struct {
	api    *client.Client
	logger *slog.Logger
	jobs   *cache.Cache[*batchv1.Job]
	late   prometheus.Histogram
	synced atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("ttlafterfinished: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	late := prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "ttl_after_finished_controller", Name: "job_deletion_duration_seconds",
		Help:    "[ALPHA] How long after their time Jobs are deleted.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	})
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(late); err != nil {
			return nil, fmt.Errorf("ttlafterfinished: %w", err)
		}
	}
	jobs := controller.Of[*batchv1.Job](cfg.Shared)
	return &Controller{api: cfg.Client, logger: cfg.Logger, jobs: jobs, late: late}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("controller of the time to live of Jobs: reading the Jobs")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(loop.Config[cache.Key]{Name: "ttl-after-finished", Reconcile: c.reconcile, Logger: c.logger})
	add := func(job *batchv1.Job) {
		if _, ok := due(job); ok {
			queue.Add(cache.KeyOf(job))
		}
	}
	c.jobs.AddHandler(cache.Handler[*batchv1.Job]{OnAdd: add, OnUpdate: func(_, job *batchv1.Job) { add(job) }})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.jobs})
}

// due returns when a Job is to be deleted; ok is false while it is not to be.
func due(job *batchv1.Job) (at time.Time, ok bool) {
	s := job.GetSpec()
	if s == nil || s.TtlSecondsAfterFinished == nil || job.GetMetadata().GetDeletionTimestamp() != nil {
		return time.Time{}, false
	}
	for _, kind := range []string{jobs.Complete, jobs.FailedCondition} {
		if jobs.Has(job.GetStatus(), kind) {
			ended := value.GoTime(jobs.Condition(job.GetStatus(), kind).GetLastTransitionTime())
			return ended.Add(time.Duration(*s.TtlSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}

// reconcile deletes a Job whose time has come, or comes back when it will have.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	job, ok := c.jobs.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil
	}
	if at, ok := due(job); !ok || time.Until(at) > 0 {
		return wait(at, ok), nil
	}
	live, err := c.api.Jobs.Get(ctx, &metav1.GetRequest{Namespace: key.Namespace, Name: key.Name})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read Job %s before it is deleted: %w", key, err)
	}
	at, ok := due(live)
	if !ok || time.Until(at) > 0 {
		return wait(at, ok), nil
	}
	m := live.GetMetadata()
	_, err = c.api.Jobs.Delete(ctx, &metav1.DeleteRequest{
		Namespace: key.Namespace, Name: key.Name, Options: &metav1.DeleteOptions{
			PropagationPolicy: proto.String(propagation.Foreground),
			Preconditions:     &metav1.Preconditions{Uid: &m.Uid, ResourceVersion: &m.ResourceVersion},
		},
	})
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("delete Job %s: %w", key, err)
	}
	c.late.Observe(time.Since(at).Seconds())
	return 0, nil
}

// wait returns how long it takes until a time, 0 for none.
func wait(at time.Time, ok bool) time.Duration {
	if !ok {
		return 0
	}
	return time.Until(at)
}
