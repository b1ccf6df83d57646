// Package tainteviction is the controller that ends the pods of nodes with NoExecute taints, those that do not
// tolerate them at once and others when the time is over for which they do (spec: NODE-3, NODE-5, DISR-4). The taints
// of lost nodes come from package nodelifecycle, which sees to it that they do not come too fast; others from people.
//
//	                 a taint that is not tolerated for ever
//	┌──────────────┐ ──────────────────────────────────────▶ ┌──────────────────────────┐
//	│ may stay     │                                         │ may stay for so long,    │
//	│              │ ◀────────────────────────────────────── │ since it was first seen  │
//	└──────────────┘ the taint goes, a toleration comes      └──────────────────────────┘
//	                 (event: Cancelling deletion)                  │ time is over, and live reads of the pod
//	                                                               ▼ and its node agree
//	                                        condition DisruptionTarget (DeletionByTaintManager),
//	                                        event TaintManagerEviction, graceful deletion
//
// What it guarantees: it only begins graceful deletions, each of the very pod, by its uid, at the revision that was
// judged, so that a toleration that comes in between is honoured. A pod that is being deleted already is left alone.
// It is the pod's agent that ends it: one that is lost does so when it is back, and its pods keep their whole grace.
//
// The times are this process's own: after a start each pod has its whole time again.
package tainteviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/codec/wire"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/taints"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:taint-eviction.
	Client *client.Client
	// Shared has the pods and nodes.
	Shared *controller.Shared
	// Logger is told what is evicted, and of failures; nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Controller evicts pods. Run starts it.
type Controller struct {
	cfg       Config
	deletions prometheus.Counter
	synced    atomic.Bool

	pods   *cache.Cache[*corev1.Pod]
	nodes  *cache.Cache[*corev1.Node]
	queue  *loop.Loop[item]
	events *record.Recorder

	mu sync.Mutex
	// since is when pods that may not stay for ever were first seen so.
	since map[item]time.Time
}

// item is one pod. It holds the uid, so that a successor is another item.
type item struct {
	key cache.Key
	uid string
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("tainteviction: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, pods: controller.Of[*corev1.Pod](cfg.Shared, controller.ByNode),
		nodes: controller.Of[*corev1.Node](cfg.Shared), since: map[item]time.Time{},
		deletions: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: "taint_eviction_controller", Name: "pod_deletions_total",
			Help: "[ALPHA] Pods whose deletion was begun because of a taint of their node.",
		}),
		events: record.New(record.Config{
			Events: cfg.Client.Events, Controller: "taint-eviction-controller", Logger: cfg.Logger,
		}),
	}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(c.deletions); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("taint-eviction controller: reading the pods and nodes")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[item]{
		Name: "taint-eviction", Reconcile: c.reconcile, Workers: 8, Logger: c.cfg.Logger,
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: c.podAppeared, OnUpdate: c.podChanged, OnDelete: c.podGone})
	c.nodes.AddHandler(cache.Handler[*corev1.Node]{
		OnAdd: func(n *corev1.Node) {
			if evicts(n) {
				c.podsOf(n)
			}
		},
		OnUpdate: func(was, n *corev1.Node) {
			if (evicts(was) || evicts(n)) && !sameTaints(was, n) {
				c.podsOf(n)
			}
		},
		// A successor of the same name has taints of its own, from when on times count anew.
		OnDelete: c.podsOf,
	})
	// Before all is known a pod would be judged by half of what there is.
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.pods, c.nodes}, c.events.Run)
}

func (c *Controller) podAppeared(p *corev1.Pod) {
	if n, ok := c.nodes.Get("", p.GetSpec().GetNodeName()); ok && evicts(n) {
		c.queue.Add(itemOf(p))
	}
}

func (c *Controller) podChanged(was, p *corev1.Pod) {
	before, after := was.GetSpec(), p.GetSpec()
	if before == after { // most changes are of the status
		return
	}
	if before.GetNodeName() != after.GetNodeName() || len(before.GetTolerations()) != len(after.GetTolerations()) {
		c.podAppeared(p)
		return
	}
	for i, t := range after.GetTolerations() {
		if !wire.Equal(t, before.GetTolerations()[i]) {
			c.podAppeared(p)
			return
		}
	}
}

func (c *Controller) podGone(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, itemOf(p))
}

// podsOf has all pods of a node judged anew.
func (c *Controller) podsOf(n *corev1.Node) {
	for _, p := range c.pods.ByIndex(controller.ByNode, n.GetMetadata().GetName()) {
		c.queue.Add(itemOf(p))
	}
}

func itemOf(p *corev1.Pod) item { return item{cache.KeyOf(p), p.GetMetadata().GetUid()} }

// evicts says whether a node has a taint that ends pods.
func evicts(n *corev1.Node) bool {
	for _, t := range n.GetSpec().GetTaints() {
		if t.GetEffect() == taints.NoExecute {
			return true
		}
	}
	return false
}

func sameTaints(a, b *corev1.Node) bool {
	x, y := a.GetSpec().GetTaints(), b.GetSpec().GetTaints()
	if len(x) != len(y) {
		return false
	}
	for i, t := range x {
		if t != y[i] && !wire.Equal(t, y[i]) {
			return false
		}
	}
	return true
}

// reconcile judges one pod, and evicts it when its time is over.
func (c *Controller) reconcile(ctx context.Context, i item) (time.Duration, error) {
	p, ok := c.pods.Get(i.key.Namespace, i.key.Name)
	if !ok || p.GetMetadata().GetUid() != i.uid || p.GetMetadata().GetDeletionTimestamp() != nil {
		c.forget(i)
		return 0, nil
	}
	n, ok := c.nodes.Get("", p.GetSpec().GetNodeName())
	if !ok { // where a node has gone its pods are PodGC's
		c.forget(i)
		return 0, nil
	}
	left, forever := c.left(i, n, p)
	switch {
	case forever:
		if c.forget(i) {
			c.tell(p, "Cancelling deletion of Pod "+i.key.String())
		}
		return 0, nil
	case left > 0:
		return left, nil
	default:
		return c.evict(ctx, i)
	}
}

// left says how long a pod may still stay on its node.
func (c *Controller) left(i item, n *corev1.Node, p *corev1.Pod) (d time.Duration, forever bool) {
	stay, forever := taints.Stay(n.GetSpec().GetTaints(), p.GetSpec().GetTolerations())
	if forever {
		return 0, true
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.since[i]
	if !ok {
		since = now
		c.since[i] = now
	}
	return stay - now.Sub(since), false
}

// forget says whether the pod had not much time left, and forgets that.
func (c *Controller) forget(i item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, had := c.since[i]
	delete(c.since, i)
	return had
}

// evict begins the deletion of a pod, if live reads agree that its time is over.
func (c *Controller) evict(ctx context.Context, i item) (time.Duration, error) {
	p, err := c.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: i.key.Namespace, Name: i.key.Name})
	if apierrors.Is(err, apierrors.NotFound) ||
		err == nil && (p.GetMetadata().GetUid() != i.uid || p.GetMetadata().GetDeletionTimestamp() != nil) {
		c.forget(i)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pod %s: %w", i.key, err)
	}
	n, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: p.GetSpec().GetNodeName()})
	if apierrors.Is(err, apierrors.NotFound) {
		c.forget(i)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the node of pod %s: %w", i.key, err)
	}
	switch left, forever := c.left(i, n, p); {
	case forever: // the caches are behind, and will tell
		return 0, nil
	case left > 0:
		return left, nil
	}
	if !phase.Terminal(p) { // what has ended is not disrupted
		p, err = podstatus.Write(ctx, c.cfg.Client.Pods, "taint-eviction", p, disrupt)
	}
	if err == nil {
		m := p.GetMetadata()
		_, err = c.cfg.Client.Pods.Delete(ctx, &metav1.DeleteRequest{
			Namespace: m.GetNamespace(), Name: m.GetName(),
			Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
				Uid: &m.Uid, ResourceVersion: &m.ResourceVersion,
			}},
		})
	}
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		c.forget(i)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("evict pod %s: %w", i.key, err)
	}
	c.forget(i)
	c.deletions.Inc()
	c.tell(p, "Marking for deletion Pod "+i.key.String())
	c.cfg.Logger.Info("evicted a pod because of a taint of its node", "pod", i.key.String(), "uid", i.uid,
		"node", p.GetSpec().GetNodeName())
	return 0, nil
}

// disrupt says why the pod is going to end.
func disrupt(p *corev1.Pod, s *corev1.PodStatus) bool {
	const kind, reason = disruption.Target, disruption.ByTaint
	if c := podstatus.Condition(s, kind); c.GetStatus() == "True" && c.GetReason() == reason || phase.Terminal(p) {
		return false
	}
	podstatus.SetCondition(s, &corev1.PodCondition{
		Type: kind, Status: "True", Reason: reason, Message: "Taint manager: deleting due to NoExecute taint",
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: p.GetMetadata().GetGeneration(),
	})
	return true
}

func (c *Controller) tell(p *corev1.Pod, note string) {
	c.events.Event(p, record.Normal, "TaintManagerEviction", "Evicting", note)
}
