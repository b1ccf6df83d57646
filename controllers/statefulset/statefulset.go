package statefulset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"monoplane.dev/controllers/internal/history"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/controllers/statefulset/members"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/labelselector"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:statefulset.
	Client *client.Client
	// Shared has the pods, claims and revisions.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the pods of StatefulSets. Run starts it.
type Controller struct {
	api     *client.Client
	logger  *slog.Logger
	sets    *cache.Cache[*appsv1.StatefulSet]
	pods    *cache.Cache[*corev1.Pod]
	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	history *cache.Cache[*appsv1.ControllerRevision]

	events    *record.Recorder
	control   *podcontrol.Control
	revisions *history.Control
	queue     *loop.Loop[cache.Key]
	synced    atomic.Bool

	mu sync.Mutex
	// written is what the caches may not have yet, by the uid of the StatefulSet.
	written map[string]*writes
}

// writes are the newest resourceVersions of what was written for a StatefulSet: its status, and claims.
type writes struct{ set, claim uint64 }

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("statefulset: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	events := record.New(record.Config{Events: cfg.Client.Events, Controller: "statefulset-controller",
		Logger: cfg.Logger})
	pods := controller.Of[*corev1.Pod](cfg.Shared, controller.ByController, controller.Unmanaged)
	revisions := controller.Of[*appsv1.ControllerRevision](cfg.Shared, controller.ByController, controller.Unmanaged)
	return &Controller{
		api: cfg.Client, logger: cfg.Logger, pods: pods, history: revisions,
		claims: controller.Of[*corev1.PersistentVolumeClaim](cfg.Shared),
		sets: cache.New(cache.Config[*appsv1.StatefulSet]{
			Source: cache.Watch(cfg.Client.StatefulSets.Watch), Logger: cfg.Logger,
			Indexes: controller.Indexes[*appsv1.StatefulSet](controller.ByNamespace),
		}),
		events: events, control: podcontrol.New(cfg.Client.Pods, pods, events),
		revisions: history.New(cfg.Client.ControllerRevisions, revisions), written: map[string]*writes{},
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("statefulset controller: reading the stateful sets, their pods, claims and revisions")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[cache.Key]{Name: "statefulset", Reconcile: c.reconcile, Logger: c.logger})
	c.watch()
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.sets, c.pods, c.claims, c.history},
		c.events.Run, c.sets.Run)
}

// reconcile takes one StatefulSet a step further.
func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	o, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok {
		return 0, nil // forgotten by its deletion's handler
	}
	uid := o.GetMetadata().GetUid()
	if err := c.settle(ctx, uid); err != nil {
		return 0, err
	}
	if o, ok = c.sets.Get(key.Namespace, key.Name); !ok || o.GetMetadata().GetUid() != uid {
		c.forget(uid) // it went meanwhile; another of its name comes by itself
		return 0, nil
	}
	selector := labelselector.OrNothing(o.GetSpec().GetSelector())
	known, err := c.revisions.List(ctx, o, selector, c.live(o))
	if err != nil {
		return 0, err
	}
	pods, err := c.claim(ctx, o, selector)
	if err != nil {
		return 0, err
	}
	return c.step(ctx, o, known, pods)
}

// step does what is next for a StatefulSet, and writes its status.
func (c *Controller) step(
	ctx context.Context, o *appsv1.StatefulSet, known []*appsv1.ControllerRevision, pods []*corev1.Pod,
) (time.Duration, error) {
	now := time.Now()
	seen := members.Seen{
		Set: o, Pods: pods, Now: now,
		Pod: func(t *corev1.PodTemplateSpec) *corev1.Pod { return podcontrol.FromTemplate(o, t) },
		Claim: func(name string) *corev1.PersistentVolumeClaim {
			claim, _ := c.claims.Get(o.GetMetadata().GetNamespace(), name)
			return claim
		},
	}
	known, err := c.find(ctx, o, known, &seen)
	if err != nil {
		return 0, err
	}
	plan := members.Next(seen)
	done := c.act(ctx, o, plan)
	if done == nil {
		plan.Status.CurrentReplicas -= plan.Updated
	}
	members.Complete(o, plan.Status)
	if err := c.publish(ctx, o, plan.Status); err != nil {
		return 0, errors.Join(done, err)
	}
	live := map[string]bool{seen.Current.Name: true, seen.Update.Name: true, plan.Status.CurrentRevision: true}
	for _, p := range pods {
		live[members.Revision(p)] = true
	}
	err = errors.Join(done, c.revisions.Truncate(ctx, o, known, live, int(o.GetSpec().GetRevisionHistoryLimit())))
	return availability.Next(pods, o.GetSpec().GetMinReadySeconds(), now), err
}

// find finds the revisions that the pods of a StatefulSet had and are to have, and makes the newest if need be. It
// returns all of them. Those of a StatefulSet that is being deleted are left to the garbage collector.
func (c *Controller) find(
	ctx context.Context, o *appsv1.StatefulSet, known []*appsv1.ControllerRevision, seen *members.Seen,
) ([]*appsv1.ControllerRevision, error) {
	m := o.GetMetadata()
	if m.GetDeletionTimestamp() != nil {
		seen.Current.Name, seen.Update.Name = o.GetStatus().GetCurrentRevision(), o.GetStatus().GetUpdateRevision()
		seen.Collisions = o.GetStatus().GetCollisionCount()
		return nil, nil
	}
	data, err := history.TemplatePatch(o.GetSpec().GetTemplate())
	if err != nil {
		return nil, err
	}
	seen.Collisions = o.GetStatus().GetCollisionCount()
	newest, known, collisions, err := c.revisions.Newest(ctx, o, known, history.State{
		Data: data, Labels: o.GetSpec().GetTemplate().GetMetadata().GetLabels(), Annotations: m.GetAnnotations(),
		Collisions: seen.Collisions,
	})
	if err != nil {
		return nil, err
	}
	seen.Collisions = collisions
	seen.Update = members.Template{Name: newest.GetMetadata().GetName(), Template: o.GetSpec().GetTemplate()}
	seen.Current = seen.Update
	for _, r := range known {
		if name := r.GetMetadata().GetName(); name == o.GetStatus().GetCurrentRevision() && name != seen.Update.Name {
			t, err := history.Template(r.GetData().GetRaw())
			if err != nil {
				return nil, fmt.Errorf("revision %s/%s: %w", m.GetNamespace(), name, err)
			}
			seen.Current = members.Template{Name: name, Template: t}
		}
	}
	return known, nil
}

// claim returns the pods of a StatefulSet, after adoptions and releases.
func (c *Controller) claim(
	ctx context.Context, o *appsv1.StatefulSet, selector labels.Selector,
) ([]*corev1.Pod, error) {
	m := o.GetMetadata()
	claim := owned.Claim[*corev1.Pod]{
		Owner: o,
		Selects: func(p *corev1.Pod) bool {
			_, ok := members.Ordinal(m.GetName(), p)
			return ok && selector.Matches(labels.Set(p.GetMetadata().GetLabels()))
		},
		Live: c.live(o),
		Patch: func(ctx context.Context, req *metav1.PatchRequest) (*corev1.Pod, error) {
			p, err := c.api.Pods.Patch(ctx, req)
			if err == nil {
				c.control.Wrote(m.GetUid(), p)
			}
			return p, err
		},
	}
	return claim.Take(ctx, append(c.pods.ByIndex(controller.ByController, m.GetUid()),
		c.pods.ByIndex(controller.Unmanaged, m.GetNamespace())...))
}

// live returns a function that reads a StatefulSet from the server.
func (c *Controller) live(o *appsv1.StatefulSet) func(context.Context) (object.Object, error) {
	m := o.GetMetadata()
	return func(ctx context.Context) (object.Object, error) {
		return c.api.StatefulSets.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
	}
}

// publish writes the status, unless it is there.
func (c *Controller) publish(ctx context.Context, o *appsv1.StatefulSet, s *appsv1.StatefulSetStatus) error {
	if proto.Equal(s, o.GetStatus()) {
		return nil
	}
	next := o.Shallow()
	next.Status = s
	out, err := c.api.StatefulSets.UpdateStatus(ctx, &appsv1rpc.UpdateStatefulSetRequest{Object: next})
	if err != nil {
		return err
	}
	c.wrote(o, func(w *writes) *uint64 { return &w.set }, out)
	return nil
}

// settleTime is how long the caches may take to have what was written.
const settleTime = 30 * time.Second

// settle waits until the caches have what was written for a StatefulSet.
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
	if err := errors.Join(wait(w.set, c.sets.WaitFor), wait(w.claim, c.claims.WaitFor)); err != nil {
		return fmt.Errorf("wait for the caches: %w", err)
	}
	return errors.Join(c.control.Settle(ctx, uid), c.revisions.Settle(ctx, uid))
}

// wrote notes what was written for a StatefulSet, and which of writes it is.
func (c *Controller) wrote(o *appsv1.StatefulSet, which func(*writes) *uint64, out object.Object) {
	revision, err := strconv.ParseUint(out.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.written[o.GetMetadata().GetUid()]
	if w == nil {
		w = &writes{}
		c.written[o.GetMetadata().GetUid()] = w
	}
	*which(w) = max(*which(w), revision)
}

func (c *Controller) forget(uid string) {
	c.control.Forget(uid)
	c.revisions.Forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
}
