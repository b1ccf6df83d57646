package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/deployment/rollout"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
	"monoplane.dev/rules/phase"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:deployment.
	Client *client.Client
	// Shared has the pods and ReplicaSets.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps Deployments. Run starts it.
type Controller struct {
	api         *client.Client
	logger      *slog.Logger
	deployments *cache.Cache[*appsv1.Deployment]
	sets        *cache.Cache[*appsv1.ReplicaSet]
	pods        *cache.Cache[*corev1.Pod]
	events      *record.Recorder
	queue       *loop.Loop[cache.Key]
	synced      atomic.Bool

	mu sync.Mutex
	// written is what the caches may not have yet, by the uid of the Deployment.
	written map[string]*writes
}

// writes are the newest resourceVersions of what was written for a Deployment.
type writes struct{ deployment, set uint64 }

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("deployment: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{
		api: cfg.Client, logger: cfg.Logger,
		sets: controller.Of[*appsv1.ReplicaSet](cfg.Shared, controller.ByController, controller.Unmanaged),
		pods: controller.Of[*corev1.Pod](cfg.Shared, controller.ByController),
		deployments: cache.New(cache.Config[*appsv1.Deployment]{
			Source: cache.Watch(cfg.Client.Deployments.Watch), Logger: cfg.Logger,
			Indexes: controller.Indexes[*appsv1.Deployment](controller.ByNamespace),
		}),
		events: record.New(record.Config{Events: cfg.Client.Events, Controller: "deployment-controller",
			Logger: cfg.Logger}),
		written: map[string]*writes{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("deployment controller: reading the deployments, replica sets and pods")
	}
	return nil
}

// minDelay is how soon what failed is tried again. A set whose status changed meanwhile is the normal course of
// things.
const minDelay = 10 * time.Millisecond

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{
		Name: "deployment", Reconcile: c.reconcile, Logger: c.logger, MinDelay: minDelay,
	})
	c.deployments.AddHandler(cache.Handler[*appsv1.Deployment]{
		OnAdd: func(d *appsv1.Deployment) { c.queue.Add(cache.KeyOf(d)) },
		OnUpdate: func(_, d *appsv1.Deployment) {
			c.queue.Add(cache.KeyOf(d))
		},
		OnDelete: func(d *appsv1.Deployment) { c.forget(d.GetMetadata().GetUid()) },
	})
	c.sets.AddHandler(cache.Handler[*appsv1.ReplicaSet]{
		OnAdd: c.setChanged,
		OnUpdate: func(old, rs *appsv1.ReplicaSet) {
			if controller.ManagerOf(old).GetUid() != controller.ManagerOf(rs).GetUid() {
				c.setChanged(old)
			}
			c.setChanged(rs)
		},
		OnDelete: c.setChanged,
	})
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.deployments, c.sets, c.pods},
		c.events.Run, c.deployments.Run)
}

// setChanged has the Deployment looked at that manages a set, or those that may adopt it.
func (c *Controller) setChanged(rs *appsv1.ReplicaSet) {
	namespace := rs.GetMetadata().GetNamespace()
	if r := controller.ManagerOf(rs); r != nil {
		if owned.IsManager(r, appsv1.DeploymentKind) {
			c.queue.Add(cache.Key{Namespace: namespace, Name: r.GetName()})
		}
		return
	}
	set := labels.Set(rs.GetMetadata().GetLabels())
	if len(set) == 0 {
		return
	}
	for _, d := range c.deployments.ByIndex(controller.ByNamespace, namespace) {
		if labelselector.OrNothing(d.GetSpec().GetSelector()).Matches(set) {
			c.queue.Add(cache.KeyOf(d))
		}
	}
}

// reconcile takes one Deployment a step further.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	d, ok := c.deployments.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil // forgotten by its deletion's handler
	}
	uid := d.GetMetadata().GetUid()
	if err := c.settle(ctx, uid); err != nil {
		return 0, err
	}
	if d, ok = c.deployments.Get(key.Namespace, key.Name); !ok || d.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	sets, err := c.claim(ctx, d)
	if err != nil {
		return 0, err
	}
	return c.step(ctx, d, sets)
}

// claim returns the sets of a Deployment, after adoptions and releases.
func (c *Controller) claim(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	m, selector := d.GetMetadata(), labelselector.OrNothing(d.GetSpec().GetSelector())
	claim := owned.Claim[*appsv1.ReplicaSet]{
		Owner:   d,
		Selects: func(rs *appsv1.ReplicaSet) bool { return selector.Matches(labels.Set(rs.GetMetadata().GetLabels())) },
		Live: func(ctx context.Context) (object.Object, error) {
			return c.api.Deployments.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
		},
		Patch: func(ctx context.Context, req *metav1.PatchRequest) (*appsv1.ReplicaSet, error) {
			rs, err := c.api.ReplicaSets.Patch(ctx, req)
			return c.wroteSet(d, rs, err)
		},
	}
	return claim.Take(ctx, append(c.sets.ByIndex(controller.ByController, m.GetUid()),
		c.sets.ByIndex(controller.Unmanaged, m.GetNamespace())...))
}

// step does the next thing for a Deployment, and writes its status.
func (c *Controller) step(
	ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet,
) (again time.Duration, err error) {
	fresh, old := rollout.Find(d, sets)
	seen := rollout.Seen{New: fresh, Old: old}
	if d.GetMetadata().GetDeletionTimestamp() != nil {
		seen.Still = true
		return c.publish(ctx, d, seen)
	}
	if fresh != nil {
		if next := rollout.Renewed(d, fresh, old); next != nil {
			if fresh, err = c.updateSet(ctx, d, next); err != nil {
				return 0, err
			}
			seen.New = fresh
		}
		generation := d.GetMetadata().GetGeneration()
		if d, err = c.markRevision(ctx, d, fresh); err != nil || d.GetMetadata().GetGeneration() != generation {
			return 0, err // a newer template has its own set, which the cache's event has looked for
		}
	}
	p := rollout.Next(d, fresh, old, func() bool { return c.run(old) })
	seen.Still = d.GetSpec().GetPaused()
	var failed error
	if p.Make {
		made, err := c.makeSet(ctx, d, old, p.Size)
		switch {
		case err == nil:
			seen.New, seen.Made = made, true
		case made != nil:
			return 0, err
		default:
			failed = err
			seen.Failure = fmt.Sprintf("Failed to create new replica set %q: %v",
				rollout.New(d, old, p.Size).GetMetadata().GetName(), err)
			c.events.Event(d, record.Warning, rollout.CreateFailed, "Creating", seen.Failure)
		}
	}
	for _, s := range p.Scale {
		if err := c.scaleSet(ctx, d, s, &seen); err != nil {
			return 0, err
		}
	}
	for _, rs := range p.Remove {
		if err := c.removeSet(ctx, d, rs); err != nil {
			return 0, err
		}
		seen.Old = slices.DeleteFunc(seen.Old, func(o *appsv1.ReplicaSet) bool { return o == rs })
	}
	again, err = c.publish(ctx, d, seen)
	return again, errors.Join(failed, err)
}

// run says whether a pod of some sets has not ended.
func (c *Controller) run(sets []*appsv1.ReplicaSet) bool {
	for _, rs := range sets {
		for _, p := range c.pods.ByIndex(controller.ByController, rs.GetMetadata().GetUid()) {
			if !phase.Terminal(p) {
				return true
			}
		}
	}
	return false
}

// publish writes the status, unless it is there. It returns when the Deployment is to be looked at again.
func (c *Controller) publish(
	ctx context.Context, d *appsv1.Deployment, seen rollout.Seen,
) (again time.Duration, err error) {
	seen.Now = time.Now()
	status := rollout.Status(d, seen)
	if !proto.Equal(status, d.GetStatus()) {
		if err := c.writeStatus(ctx, d, status); err != nil {
			return 0, err
		}
	}
	return rollout.Deadline(d, status, seen.Now), nil
}

func (c *Controller) writeStatus(ctx context.Context, d *appsv1.Deployment, s *appsv1.DeploymentStatus) error {
	next := d.Shallow()
	next.Status = s
	out, err := c.api.Deployments.UpdateStatus(ctx, &appsv1rpc.UpdateDeploymentRequest{Object: next})
	if err != nil {
		return err
	}
	c.wrote(d, out)
	return nil
}

// settleTime is how long the caches may take to have what was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written for a Deployment.
func (c *Controller) settle(ctx context.Context, uid string) error {
	c.mu.Lock()
	var w writes
	if known := c.written[uid]; known != nil {
		w = *known
	}
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	wait := func(revision uint64, wait func(context.Context, string) error) error {
		if revision == 0 {
			return nil
		}
		return wait(limited, strconv.FormatUint(revision, 10))
	}
	if err := errors.Join(wait(w.deployment, c.deployments.WaitFor), wait(w.set, c.sets.WaitFor)); err != nil {
		return fmt.Errorf("wait for the caches: %w", err)
	}
	return nil
}

// wrote notes what was written for a Deployment: itself, or one of its sets.
func (c *Controller) wrote(d *appsv1.Deployment, o object.Object) {
	revision, err := strconv.ParseUint(o.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.written[d.GetMetadata().GetUid()]
	if w == nil {
		w = &writes{}
		c.written[d.GetMetadata().GetUid()] = w
	}
	if o.ObjectKind() == appsv1.DeploymentKind {
		w.deployment = max(w.deployment, revision)
	} else {
		w.set = max(w.set, revision)
	}
}

func (c *Controller) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
}
