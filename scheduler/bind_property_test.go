package scheduler_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/scenario"
)

// Whatever happens to pods and nodes between decisions and bindings, no binding puts a pod where it does not fit at
// that very revision. The history of the server is replayed to see it. In the end every pod that fits somewhere is
// bound.
//
// Only the size of bound pods is left alone, except that they shrink: a node that a resize has overcommitted is not
// the binding's doing.
//
// spec: SCHED-3
func TestBindingsNeverOvercommit(t *testing.T) { neverOvercommit(t, false) }

// So it is when pods have priorities and preempt each other, also when victims cannot be marked or deleted at first.
//
// spec: SCHED-3, PREEMPT-2
func TestPreemptionNeverOvercommits(t *testing.T) { neverOvercommit(t, true) }

func neverOvercommit(t *testing.T, priorities bool) {
	t.Helper()
	var bound, preempted int
	var lost, repeated float64
	seeds := played()
	much := func() bool {
		return bound >= 20*seeds && lost >= float64(5*seeds) && repeated >= float64(5*seeds) &&
			(!priorities || preempted >= 5*seeds)
	}
	// How much happens in a history depends on how its goroutines overtake each other, so that it may take a few more.
	seed := uint64(0)
	for ; seed < uint64(seeds) || seed < uint64(3*seeds) && !much(); seed++ { //nolint:gosec // not negative
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 21))
			inWorld(t, scheduler.Config{Seed: seed + 1, Binders: 1 + rng.IntN(8)}, func(w *world) {
				if priorities {
					defer w.agents()()
				}
				c := &chaos{world: w, rng: rng, priorities: priorities}
				w.server.React(c.disturb)
				for i := range 4 {
					c.createNode(fmt.Sprint("n", i))
				}
				for range 250 {
					c.step()
					if c.roll(4) == 0 {
						time.Sleep(time.Duration(c.roll(300)) * time.Millisecond)
					}
				}
				w.server.React(nil)
				time.Sleep(10 * time.Minute)
				h := w.history()
				bound += h.replay(t)
				h.checkNothingFits(t)
				preempted += h.preempted
				lost += w.conflicts("lost")
				repeated += w.conflicts("repeated")
			})
		})
	}
	t.Logf("%d bound, %d preempted, %v lost, %v repeated in %d histories", bound, preempted, lost, repeated, seed)
	if !much() {
		t.Errorf("the test does not test much: it needs %d histories' worth", seeds)
	}
}

// chaos does random things to pods and nodes, also while one is being bound.
type chaos struct {
	*world
	// priorities says whether pods have different ones, and a short grace.
	priorities bool

	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// disturb holds bindings up, changes what is being bound, and loses some requests.
func (c *chaos) disturb(_ context.Context, method string, req any) error {
	switch method {
	case corev1rpc.Pods_Delete_FullMethodName:
		if c.priorities && req.(*metav1.DeleteRequest).GracePeriodSeconds == nil && c.roll(5) == 0 {
			return apierrors.New(apierrors.ServiceUnavailable, "down")
		}
		return nil
	case corev1rpc.Pods_UpdateStatus_FullMethodName:
		if c.priorities && req.(*corev1rpc.UpdatePodRequest).GetFieldManager() == "scheduler" && c.roll(5) == 0 {
			return apierrors.New(apierrors.ServiceUnavailable, "down")
		}
		return nil
	case corev1rpc.Pods_Bind_FullMethodName:
	default:
		return nil
	}
	b := req.(*corev1rpc.BindPodRequest)
	time.Sleep(time.Duration(c.roll(60)) * time.Millisecond) // bindings overtake each other
	switch c.roll(6) {
	case 0:
		c.mutatePod(b.GetName())
	case 1:
		c.mutateNode(b.GetObject().GetTarget().GetName())
	case 2:
		if c.roll(3) == 0 {
			return apierrors.New(apierrors.ServiceUnavailable, "down")
		}
	}
	return nil
}

func (c *chaos) step() {
	name := fmt.Sprint("p", c.roll(40))
	switch c.roll(5) {
	case 0:
		c.mutateNode(fmt.Sprint("n", c.roll(4)))
	case 1:
		c.mutatePod(name)
	default:
		p := newPod(name, c.size()...)
		if c.priorities {
			priority, grace := int32(c.roll(5)), int64(c.roll(4)) //nolint:gosec // small
			p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = &priority, &grace
			scenario.Classify(c, c.c, p)
		}
		_, err := c.c.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
		if err != nil {
			c.tolerate(err)
			zero := int64(0)
			_, err := c.c.Pods.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: name,
				GracePeriodSeconds: &zero})
			c.tolerate(err)
		}
	}
}

// tolerate accepts what happens to writers who race.
func (c *chaos) tolerate(err error) {
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) &&
		!apierrors.Is(err, apierrors.AlreadyExists) {
		c.Error(err)
	}
}

func (c *chaos) size() []string {
	return []string{fmt.Sprintf("cpu=%dm", 100*(1+c.roll(20))), fmt.Sprintf("memory=%dMi", 64*(1+c.roll(20)))}
}

func (c *chaos) mutatePod(name string) {
	ctx := context.Background()
	p, err := c.c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: name})
	if err != nil {
		c.tolerate(err)
		return
	}
	p = object.Clone(p)
	switch c.roll(4) {
	case 0, 1:
		size := c.size()
		if p.GetSpec().GetNodeName() != "" {
			size = []string{"cpu=50m", "memory=1Mi"}
		}
		p.Spec.Containers[0].Resources.Requests = quantities(size...)
		_, err = c.c.Pods.UpdateResize(ctx, &corev1rpc.UpdatePodRequest{Object: p})
		if apierrors.Is(err, apierrors.Forbidden) && strings.Contains(err.Error(), "not found") {
			return // its node has gone
		}
	case 2:
		p.Status.Message = fmt.Sprint(c.roll(1000))
		_, err = c.c.Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: p})
	default:
		p.Metadata.Labels = map[string]string{"x": fmt.Sprint(c.roll(1000))}
		_, err = c.c.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Object: p})
	}
	c.tolerate(err)
}

func (c *chaos) createNode(name string) {
	n := newNode(name, fmt.Sprintf("cpu=%d", 1+c.roll(8)), "memory=8Gi", fmt.Sprintf("pods=%d", 2+c.roll(8)))
	_, err := c.server.Agent(name).Nodes.Create(context.Background(), &corev1rpc.CreateNodeRequest{Object: n})
	c.tolerate(err)
}

func (c *chaos) mutateNode(name string) {
	ctx := context.Background()
	n, err := c.c.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
	if err != nil {
		c.tolerate(err)
		c.createNode(name)
		return
	}
	n = object.Clone(n)
	switch c.roll(8) {
	case 0:
		n.Status.Allocatable = quantities(fmt.Sprintf("cpu=%d", 1+c.roll(8)), "memory=8Gi",
			fmt.Sprintf("pods=%d", 2+c.roll(8)))
		_, err = c.c.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{Object: n})
	case 1:
		n.Spec.Unschedulable = !n.Spec.Unschedulable
		_, err = c.c.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{Object: n})
	case 2:
		if n.Spec.Taints == nil {
			taint(n)
		} else {
			n.Spec.Taints = nil
		}
		_, err = c.c.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{Object: n})
	case 3:
		_, err = c.c.Nodes.Delete(ctx, &metav1.DeleteRequest{Name: name})
		c.createNode(name)
	default:
		n.Status.Conditions = []*corev1.NodeCondition{{Type: "Ready", Status: "True", Message: fmt.Sprint(c.roll(1000))}}
		_, err = c.c.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{Object: n})
	}
	c.tolerate(err)
}

// history is all that happened on the server, in order, and what has come of it.
type history struct {
	changes []occurrence
	pods    map[string]*corev1.Pod
	nodes   map[string]*corev1.Node
	// preempted is how many pods were, as far as the history was replayed.
	preempted int
}

type occurrence struct {
	revision int64
	deleted  bool
	object   object.Object
}

// history reads what has happened so far.
func (w *world) history() *history {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pods, err := w.c.Pods.Watch(ctx, &metav1.WatchRequest{ResourceVersion: w.begun})
	w.must(nil, err)
	nodes, err := w.c.Nodes.Watch(ctx, &metav1.WatchRequest{ResourceVersion: w.begun})
	w.must(nil, err)
	h := &history{pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}}
	var mu sync.Mutex
	add := func(o object.Object, deleted bool) {
		revision, err := strconv.ParseInt(o.GetMetadata().GetResourceVersion(), 10, 64)
		if err != nil {
			w.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		h.changes = append(h.changes, occurrence{revision, deleted, o})
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for batch, err := pods.Recv(); err == nil; batch, err = pods.Recv() {
			for _, e := range batch.GetEvents() {
				add(e.GetObject(), e.GetType() == string(object.Deleted))
			}
		}
	})
	readers.Go(func() {
		for batch, err := nodes.Recv(); err == nil; batch, err = nodes.Recv() {
			for _, e := range batch.GetEvents() {
				add(e.GetObject(), e.GetType() == string(object.Deleted))
			}
		}
	})
	synctest.Wait() // both have read to the end
	cancel()
	readers.Wait()
	slices.SortFunc(h.changes, func(a, b occurrence) int { return cmp.Compare(a.revision, b.revision) })
	return h
}

// replay checks every binding at its revision and returns how many there were.
func (h *history) replay(t *testing.T) int {
	t.Helper()
	bound := 0
	for _, c := range h.changes {
		name := c.object.GetMetadata().GetName()
		switch o := c.object.(type) {
		case *corev1.Node:
			h.nodes[name] = o
			if c.deleted {
				delete(h.nodes, name)
			}
		case *corev1.Pod:
			was := h.pods[name].GetSpec().GetNodeName()
			if preempted(o) && !preempted(h.pods[name]) {
				h.preempted++
			}
			delete(h.pods, name)
			if c.deleted || o.GetStatus().GetPhase() == "Succeeded" {
				continue
			}
			if at := o.GetSpec().GetNodeName(); at != "" && was == "" {
				bound++
				if why := h.refuses(h.nodes[at], o); why != "" {
					t.Errorf("revision %d binds %s to %s: %s", c.revision, name, at, why)
				}
			}
			h.pods[name] = o
		}
	}
	return bound
}

func preempted(p *corev1.Pod) bool {
	return p.GetMetadata().GetDeletionTimestamp() != nil && slices.ContainsFunc(p.GetStatus().GetConditions(),
		func(c *corev1.PodCondition) bool {
			return c.GetType() == "DisruptionTarget" && c.GetReason() == "PreemptionByScheduler"
		})
}

// refuses says why a pod, which is not counted, does not fit on a node; "" when it does.
func (h *history) refuses(n *corev1.Node, p *corev1.Pod) string {
	if n == nil {
		return "there is no such node"
	}
	if n.GetSpec().GetUnschedulable() || len(n.GetSpec().GetTaints()) > 0 {
		return "it is cordoned or tainted"
	}
	sum, count := framework.PodRequests(p.GetSpec()), int64(1)
	for _, o := range h.pods {
		if o.GetSpec().GetNodeName() == n.GetMetadata().GetName() {
			sum = sum.Add(framework.PodRequests(o.GetSpec()))
			count++
		}
	}
	room := framework.ParseResources(n.GetStatus().GetAllocatable())
	if sum.MilliCPU > room.MilliCPU || sum.Memory > room.Memory || count > room.Scalar[framework.Pods] {
		return fmt.Sprintf("%d pods with %+v in %+v", count, sum, room)
	}
	return ""
}

func (h *history) checkNothingFits(t *testing.T) {
	t.Helper()
	for name, p := range h.pods {
		for at, n := range h.nodes {
			if p.GetSpec().GetNodeName() == "" && h.refuses(n, p) == "" {
				t.Errorf("%s waits although it fits on %s", name, at)
			}
		}
	}
}
