package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/codec"
)

// benchSchedule measures the way from create to bound, through the whole API, fsync on. The nodes are objects without
// agents, as in other schedulers' benchmarks, but for the rows that say so. A pod is two transactions, so that half of
// raw is the limit.
func benchSchedule(ctx context.Context, e *env) error {
	for _, nodes := range []int{1000, 5000} {
		if err := scheduleOnObjects(ctx, e, e.size(nodes)); err != nil {
			return err
		}
	}
	return scheduleOnAgents(ctx, e, e.size(1000))
}

func scheduleOnObjects(ctx context.Context, e *env, nodes int) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	_, err = drive(ctx, 32, nodes, func(ctx context.Context, _, i int) error {
		_, err := c.SharedClient().Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: nodeObject(i)})
		return err
	})
	if err == nil {
		err = takePods(ctx, c)
	}
	if err != nil {
		return err
	}
	half, err := halfRaw(ctx, e)
	if err != nil {
		return err
	}
	s := &scheduling{cluster: c, env: e, nodes: nodes, half: half}
	if err := s.createClasses(ctx); err != nil {
		return err
	}
	for _, k := range append(podKinds(), preemption("64", nodes)) {
		for _, k.grpc = range []bool{false, true} {
			if err := s.row(ctx, k); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	return nil
}

// takePods waits until no node has the taint that those have which are made by clients.
func takePods(ctx context.Context, c *cluster) error {
	for {
		list, err := c.SharedClient().Nodes.List(ctx, &metav1.ListRequest{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.GetItems(), func(n *corev1.Node) bool { return len(n.GetSpec().GetTaints()) > 0 }) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// createClasses creates the priority classes low and high.
func (s *scheduling) createClasses(ctx context.Context) error {
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		_, err := s.SharedClient().PriorityClasses.Create(ctx, &schedulingv1rpc.CreatePriorityClassRequest{
			Object: &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: name}, Value: value},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scheduleOnAgents is about nodes with agents in the same process, which run simulated pods and report on them.
func scheduleOnAgents(ctx context.Context, e *env, nodes int) (err error) {
	c, err := startCluster(ctx, e, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	half, err := halfRaw(ctx, e)
	if err != nil {
		return err
	}
	s := &scheduling{cluster: c, env: e, nodes: nodes, half: half, agents: true}
	if err := s.createClasses(ctx); err != nil {
		return err
	}
	list, err := c.SharedClient().Nodes.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return err
	}
	cpu := list.GetItems()[0].GetStatus().GetAllocatable()["cpu"].GetString_()
	for _, k := range []podKind{{name: "plain", pods: 3000}, preemption(cpu, nodes)} {
		if err := s.row(ctx, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// halfRaw returns half of the transactions a second that etcd reaches with 64 clients.
func halfRaw(ctx context.Context, e *env) (rate float64, err error) {
	raw, err := newRawEtcd(ctx, e, make([]byte, 1500))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, raw.etcd.Close()) }()
	if _, err := raw.rate(ctx, 64, 1000); err != nil {
		return 0, err
	}
	rate, err = raw.rate(ctx, 64, e.size(10_000))
	return rate / 2, err
}

// scheduling is what the rows of one cluster share.
type scheduling struct {
	*cluster
	env    *env
	nodes  int
	half   float64
	agents bool
}

// row creates the pods of a kind and follows them until all are bound; then it deletes them.
func (s *scheduling) row(ctx context.Context, k podKind) error {
	if !s.env.kinds.MatchString(k.name) {
		return nil
	}
	if err := s.prepare(ctx, k); err != nil {
		return err
	}
	pods := s.env.size(k.pods)
	bound, err := s.follow(ctx, "new", pods, isBound)
	if err != nil {
		return err
	}
	if !s.agents {
		ending, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.endVictims(ending) // what it could not do, the pods that wait for its victims show
		}()
		defer func() {
			stop()
			<-ended
		}()
	}
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	var took time.Duration
	g.Go(func() error {
		_, err := drive(gctx, 16, pods, func(ctx context.Context, _, i int) error { return s.create(ctx, k, i) })
		return err
	})
	g.Go(func() error {
		err := bound(gctx)
		took = time.Since(begin)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	rate := float64(pods) / took.Seconds()
	with := ""
	if s.agents {
		with = " with agents"
	}
	if k.grpc {
		with += " (gRPC)"
	}
	r := row{
		name: fmt.Sprintf("to bound, %d nodes, %s%s", s.nodes, k.name, with), measured: perSecond(rate),
		limit: "raw/2 " + perSecond(s.half), ratio: rate / s.half,
	}
	if k.target > 0 && s.nodes == 1000 && !s.agents && !k.grpc {
		r.target, r.met = fmt.Sprintf(">= %d/s", k.target), rate >= float64(k.target)
	}
	s.env.print(r)
	return s.clear(ctx)
}

// create creates the i-th pod, over REST or gRPC, and in mixed churn deletes an earlier one.
func (s *scheduling) create(ctx context.Context, k podKind, i int) error {
	p := pod(podName("new", i), "")
	k.shape(p)
	var err error
	if k.grpc {
		_, err = s.grpc.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
	} else {
		_, err = call(ctx, s.http, http.MethodPost, s.podsURL(), codec.AppendObject(nil, p), http.StatusCreated)
	}
	if err != nil || !k.churn || i%2 == 1 {
		return err
	}
	zero := int64(0)
	_, err = s.grpc.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: "default", Name: podName("there", i/2), Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero},
	})
	return err
}

// prepare creates the pods that are there before, and waits until they have their places, or have been told that there
// is none.
func (s *scheduling) prepare(ctx context.Context, k podKind) error {
	if k.there == 0 {
		return nil
	}
	there := k.there
	if !k.perNode {
		there = s.env.size(there)
	}
	settled := isBound
	if k.waits {
		settled = isRefused
	}
	ready, err := s.follow(ctx, "there", there, settled)
	if err != nil {
		return err
	}
	_, err = drive(ctx, 64, there, func(ctx context.Context, _, i int) error {
		p := pod(podName("there", i), "")
		if k.before != nil {
			k.before(p)
		}
		_, err := s.SharedClient().Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: p})
		return err
	})
	return errors.Join(err, ready(ctx))
}

func isBound(p *corev1.Pod) bool { return p.GetSpec().GetNodeName() != "" }

func isRefused(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
		return c.GetType() == "PodScheduled" && c.GetStatus() == "False"
	})
}

// follow watches the pods whose names begin so; wait returns when n of them are settled.
func (s *scheduling) follow(ctx context.Context, prefix string, n int, settled func(*corev1.Pod) bool,
) (wait func(context.Context) error, err error) {
	list, err := s.Client().Pods.List(ctx, &metav1.ListRequest{Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.SharedClient().Pods.Watch(ctx, &metav1.WatchRequest{
		Namespace: "default", ResourceVersion: list.GetMetadata().GetResourceVersion(),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	done, failed := make(chan struct{}), error(nil)
	var stop sync.Once
	go func() {
		defer close(done)
		seen := map[string]bool{}
		for len(seen) < n && failed == nil {
			batch, err := stream.Recv()
			for _, ev := range batch.GetEvents() {
				name := ev.GetObject().GetMetadata().GetName()
				if settled(ev.GetObject()) && strings.HasPrefix(name, prefix) {
					seen[name] = true
				}
			}
			failed = err
		}
	}()
	return func(waiting context.Context) error {
		defer stop.Do(cancel)
		select {
		case <-done:
			return failed
		case <-waiting.Done():
			return waiting.Err()
		}
	}, nil
}

// clear force deletes all pods.
func (s *scheduling) clear(ctx context.Context) error {
	zero := int64(0)
	for {
		list, err := s.SharedClient().Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		if err != nil {
			return err
		}
		items := list.GetItems()
		if len(items) == 0 {
			return nil
		}
		_, err = drive(ctx, 64, len(items), func(ctx context.Context, _, i int) error {
			_, err := s.SharedClient().Pods.Delete(ctx, &metav1.DeleteRequest{
				Namespace: "default", Name: items[i].GetMetadata().GetName(),
				Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero},
			})
			return ignoreGone(err)
		})
		if err != nil {
			return err
		}
	}
}

// enders is how many pods endVictims ends at a time: nodes do that side by side.
const enders = 16

// endVictims does for nodes without agents what an agent would do at the end of a pod: it deletes pods that are being
// deleted.
func (s *scheduling) endVictims(ctx context.Context) error {
	stream, err := s.SharedClient().Pods.Watch(ctx, &metav1.WatchRequest{Namespace: "default"})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(enders)
	zero := int64(0)
	for {
		batch, err := stream.Recv()
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		for _, ev := range batch.GetEvents() {
			m := ev.GetObject().GetMetadata()
			if ev.GetType() != "MODIFIED" || m.GetDeletionTimestamp() == nil {
				continue
			}
			g.Go(func() error {
				_, err := s.SharedClient().Pods.Delete(ctx, &metav1.DeleteRequest{
					Namespace: "default", Name: m.GetName(), Options: &metav1.DeleteOptions{GracePeriodSeconds: &zero},
				})
				return ignoreGone(err)
			})
		}
	}
}
