package controllertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/phase"
)

// Server is the part of apitest.Server that Nodes needs.
type Server interface {
	Admin() *client.Client
	Scheduler() *client.Client
	Agent(node string) *client.Client
}

// Nodes plays the scheduler and the agents of some nodes: pods are bound one node after the other, run and are ready
// after a while, and go a while after their deletion has begun.
type Nodes struct {
	// Server is the API server.
	Server Server
	// Names are those of the nodes, which Start makes.
	Names []string
	// StartsIn and StopsIn say how long a pod takes; at once when nil.
	StartsIn, StopsIn func(*corev1.Pod) time.Duration
	// Place says to which node a pod is bound, "" for none; one after the other when nil.
	Place func(*corev1.Pod) string
	// Broken says that a pod never becomes ready; none when nil.
	Broken func(*corev1.Pod) bool
	// Ends says how a running pod ends by itself, and how long it takes; an empty phase stands for never, and so does
	// nil.
	Ends func(*corev1.Pod) (phase string, after time.Duration)

	next  atomic.Uint64
	calls sync.WaitGroup
	mu    sync.Mutex
	seen  map[string]string // how far a pod has come, by its uid
}

// Start makes the nodes and plays until ctx ends; wait then returns when all has ended.
func (n *Nodes) Start(ctx context.Context) (wait func(), err error) {
	for _, name := range n.Names {
		_, err := n.Server.Agent(name).Nodes.Create(ctx,
			&corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}})
		if err != nil {
			return nil, fmt.Errorf("make node %s: %w", name, err)
		}
	}
	n.seen = map[string]string{}
	pods := cache.New(cache.Config[*corev1.Pod]{Source: cache.Watch(n.Server.Admin().Pods.Watch)})
	changed := func(p *corev1.Pod) { n.changed(ctx, p) }
	pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: changed, OnUpdate: func(_, p *corev1.Pod) { changed(p) }})
	n.calls.Go(func() { _ = pods.Run(ctx) })
	return n.calls.Wait, nil
}

// changed does the next thing with a pod, once.
func (n *Nodes) changed(ctx context.Context, p *corev1.Pod) {
	var step string
	var do func(context.Context, *corev1.Pod) error
	bound, deleting := p.GetSpec().GetNodeName() != "", p.GetMetadata().GetDeletionTimestamp() != nil
	var delay func(*corev1.Pod) time.Duration
	switch {
	case deleting && bound:
		step, do, delay = "stop", n.stop, n.StopsIn
	case deleting:
		return
	case !bound:
		step, do = "bind", n.bind
	case p.GetStatus().GetPhase() == "Pending":
		step, do, delay = "run", n.run, n.StartsIn
	case p.GetStatus().GetPhase() == "Running" && n.Ends != nil:
		end, after := n.Ends(p)
		if end == "" {
			return
		}
		step, delay = "end", func(*corev1.Pod) time.Duration { return after }
		do = func(ctx context.Context, p *corev1.Pod) error { return n.End(ctx, p, end) }
	default:
		return
	}
	n.mu.Lock()
	done := n.seen[p.GetMetadata().GetUid()] == step
	n.seen[p.GetMetadata().GetUid()] = step
	n.mu.Unlock()
	if done {
		return
	}
	n.calls.Go(func() {
		if delay != nil {
			wait := time.NewTimer(delay(p))
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-ctx.Done():
				return
			}
		}
		// What goes wrong does so because the pod is gone, or the test over: what is left is seen by the test.
		_ = do(ctx, p)
	})
}

func (n *Nodes) bind(ctx context.Context, p *corev1.Pod) error {
	m := p.GetMetadata()
	var node string
	if n.Place == nil {
		node = n.Names[int(n.next.Add(1)-1)%len(n.Names)] //nolint:gosec // small
	} else if node = n.Place(p); node == "" {
		return nil
	}
	_, err := n.Server.Scheduler().Pods.Bind(ctx, &corev1rpc.BindPodRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), Object: &corev1.Binding{
			Metadata: &metav1.ObjectMeta{Uid: m.GetUid()}, Target: &corev1.ObjectReference{Kind: "Node", Name: node},
		},
	})
	return err
}

func (n *Nodes) run(ctx context.Context, p *corev1.Pod) error {
	ready := "True"
	if n.Broken != nil && n.Broken(p) {
		ready = "False"
	}
	return n.write(ctx, p, func(s *corev1.PodStatus) {
		s.Phase, s.StartTime = "Running", value.Time(time.Now())
		s.Conditions = append(s.Conditions, &corev1.PodCondition{
			Type: "Ready", Status: ready, LastTransitionTime: value.Time(time.Now()),
		})
	})
}

// End ends a pod as its agent does, once.
func (n *Nodes) End(ctx context.Context, p *corev1.Pod, as string) error {
	return n.write(ctx, p, func(s *corev1.PodStatus) {
		if !phase.Ends(s.GetPhase()) {
			s.Phase = as
		}
		for _, c := range s.GetConditions() {
			if c.GetType() == "Ready" {
				c.Status = "False"
			}
		}
	})
}

func (n *Nodes) stop(ctx context.Context, p *corev1.Pod) error {
	if err := n.End(ctx, p, "Succeeded"); err != nil {
		return err
	}
	m := p.GetMetadata()
	zero, uid := int64(0), m.GetUid()
	_, err := n.Server.Agent(p.GetSpec().GetNodeName()).Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	return err
}

// write changes the status of a pod, of its newest state.
func (n *Nodes) write(ctx context.Context, p *corev1.Pod, change func(*corev1.PodStatus)) error {
	m := p.GetMetadata()
	for {
		now, err := n.Server.Admin().Pods.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
		if err != nil || now.GetMetadata().GetUid() != m.GetUid() {
			return err
		}
		now = object.Clone(now)
		change(now.Status)
		_, err = n.Server.Agent(now.GetSpec().GetNodeName()).Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: now})
		if !apierrors.Is(err, apierrors.Conflict) {
			return err
		}
	}
}
