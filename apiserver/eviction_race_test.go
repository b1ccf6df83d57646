package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/pod/eviction"
	"monoplane.dev/rules/disruption"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
)

// settled repeats an eviction as long as the answer says when to come back, as clients do.
func settled(ctx context.Context, by client, name string) error {
	for {
		err := second(evict(ctx, by, name, nil))
		if err == nil || apierrors.From(err).Status().GetDetails().GetRetryAfterSeconds() == 0 || ctx.Err() != nil {
			return err
		}
	}
}

// spec: DISR-2
func TestAStormOfEvictions(t *testing.T) {
	t.Run("one server", func(t *testing.T) { storm(t, start(t), 1000, 300) })
	t.Run("two servers", func(t *testing.T) { storm(t, startTwo(t), 200, 60) })
}

// A pod that everybody evicts at once goes once, and takes one from its budget. spec: DISR-2
func TestAStormAtOnePod(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.runs("web-0", true)
	c.budget("b", 5, 2)
	watch := must(c.admin().Pods.Watch(ctx(t), &metav1.WatchRequest{Namespace: "default"}))(t)
	must(watch.Header())(t) // it begins with the state as it is when it is accepted
	c.atOnce(1000, func(by client) {
		if err := settled(ctx(t), by, "web-0"); err != nil {
			t.Errorf("one of those that evict is told: %v", err)
		}
	})
	if s := c.getBudget("b").Status; s.DisruptionsAllowed != 2 || len(s.DisruptedPods) != 1 {
		t.Errorf("%d more evictions are allowed, want 2; remembered: %v", s.DisruptionsAllowed, s.DisruptedPods)
	}
	c.createPod(newPod("end"))
	marks := 0
	for ended := false; !ended; {
		for _, e := range must(watch.Recv())(t).Events {
			m := e.Object.GetMetadata()
			if m.GetUid() == p.Metadata.Uid && m.GetDeletionTimestamp() != nil {
				marks++
			}
			ended = ended || m.GetName() == "end"
		}
	}
	if marks != 1 {
		t.Errorf("the pod was written %d times since its deletion began, want 1", marks)
	}
}

// Nobody evicts a pod that two budgets select, however many try: everybody is told so. spec: DISR-2
func TestAStormUnderTwoBudgets(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.runs("web-0", true)
	c.budget("a", 5, 2)
	c.budget("b", 5, 2)
	before := must(c.getPod("web-0"))(t).Metadata.ResourceVersion
	c.atOnce(1000, func(by client) {
		const want = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
		err := settled(ctx(t), by, "web-0")
		if !apierrors.Is(err, apierrors.InternalError) || apierrors.From(err).Status().GetMessage() != want {
			t.Errorf("one of those that evict is told: %v", err)
		}
	})
	now := must(c.getPod("web-0"))(t)
	if now.Metadata.Uid != p.Metadata.Uid || now.Metadata.ResourceVersion != before {
		t.Errorf("the pod was written: %v", now.Metadata)
	}
	for _, name := range []string{"a", "b"} {
		if n := c.getBudget(name).Status.DisruptionsAllowed; n != 3 {
			t.Errorf("budget %s allows %d evictions, want 3", name, n)
		}
	}
}

// atOnce has many clients do the same.
func (c *cluster) atOnce(clients int, do func(by client)) {
	var all sync.WaitGroup
	for range clients {
		by := c.admin()
		all.Go(func() { do(by) })
	}
	all.Wait()
}

// storm has as many clients as there are pods evict one each, at once, of which the budget allows some.
func storm(t *testing.T, c *cluster, pods int, allowed int32) {
	if testing.Short() { // enough to see a data race
		pods, allowed = pods/5, allowed/5
	}
	c.register("n1")
	names := make([]string, pods)
	each := func(do func(i int)) {
		var all sync.WaitGroup
		for i := range pods {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	agent, admin, scheduler := c.agent("n1"), c.admin(), c.scheduler()
	each(func(i int) {
		names[i] = fmt.Sprintf("web-%d", i)
		p := newPod(names[i])
		p.Metadata.Labels = map[string]string{"app": "web"}
		p, err := admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
		if err == nil {
			_, err = scheduler.Pods.Bind(ctx(t), &corev1rpc.BindPodRequest{Object: &corev1.Binding{
				Metadata: &metav1.ObjectMeta{Name: names[i], Namespace: "default", Uid: p.Metadata.Uid},
				Target:   &corev1.ObjectReference{Kind: "Node", Name: "n1"},
			}})
		}
		if err == nil {
			_, err = c.report(agent, p, true)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	c.budget("b", int32(pods), int32(pods)-allowed)
	var done atomic.Int32
	clients := make([]client, pods)
	for i := range clients {
		clients[i] = c.admin()
	}
	each(func(i int) {
		err := settled(ctx(t), clients[i], names[i])
		switch {
		case err == nil:
			done.Add(1)
		case !apierrors.Is(err, apierrors.TooManyRequests) ||
			apierrors.From(err).Status().GetDetails().GetCauses()[0].GetReason() != eviction.Cause:
			t.Errorf("%s: %v", names[i], err)
		}
	})
	going := 0
	for _, name := range names {
		if must(c.getPod(name))(t).Metadata.DeletionTimestamp != nil {
			going++
		}
	}
	s := c.getBudget("b").Status
	if done.Load() != allowed || going != int(allowed) || s.DisruptionsAllowed != 0 ||
		len(s.DisruptedPods) != int(allowed) {
		t.Errorf("%d evictions were permitted, %d pods go, %d are remembered, %d more are allowed; want %d, and none more",
			done.Load(), going, len(s.DisruptedPods), s.DisruptionsAllowed, allowed)
	}
}

// Whatever happens at the same time, each eviction of a healthy pod takes exactly one from a budget that had one, in
// the same transaction. spec: DISR-2
func TestEvictionsNeverOverdraw(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *cluster{
		"one server":  func(t testing.TB) *cluster { return start(t) },
		"two servers": startTwo,
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			overdraw(t, start(t), rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func overdraw(t *testing.T, c *cluster, r *rand.Rand) {
	const pods, steps = 12, 100
	c.register("n1")
	h := &evictions{t: t, written: map[string]bool{}}
	finish := h.watch(c)
	h.wrote(c.budget("b", 0, 3))
	for i := range pods {
		c.runs(fmt.Sprintf("web-%d", i), true)
	}
	var all sync.WaitGroup
	act := func(times int, do func(r *rand.Rand, by client)) {
		seed := r.Uint64()
		by := c.admin()
		all.Go(func() {
			own := rand.New(rand.NewPCG(seed, 1))
			for range times {
				do(own, by)
			}
		})
	}
	anyPod := func(r *rand.Rand) string { return fmt.Sprintf("web-%d", r.IntN(pods)) }
	for range 6 { // who evicts
		act(steps, func(r *rand.Rand, by client) { _ = second(evict(ctx(t), by, anyPod(r), nil)) })
	}
	agent := c.agent("n1")
	act(steps, func(r *rand.Rand, by client) { // an agent, whose pods turn ready and unready, and end when they are to
		p, err := by.Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: anyPod(r)})
		if err == nil && p.Metadata.DeletionTimestamp == nil {
			_, _ = c.report(agent, p, r.IntN(3) > 0)
		}
	})
	act(steps, func(r *rand.Rand, by client) { // somebody who deletes and replaces
		name := anyPod(r)
		if r.IntN(3) == 0 {
			_, _ = by.Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: name,
				Options: &metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(r.IntN(2)))}})
		}
		p := newPod(name)
		p.Metadata.Labels = map[string]string{"app": "web"}
		p.Spec.NodeName = "n1"
		if p, err := by.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}); err == nil {
			_, _ = c.report(agent, p, true)
		}
	})
	act(steps/4, func(r *rand.Rand, by client) { // somebody who edits the budget
		b := clone(c.getBudget("b"))
		b.Spec.MinAvailable.IntVal = int32(r.IntN(pods))
		b.Spec.UnhealthyPodEvictionPolicy = nil
		if r.IntN(2) == 0 {
			b.Spec.UnhealthyPodEvictionPolicy = ptr(disruption.AlwaysAllow)
		}
		b, err := by.PodDisruptionBudgets.Update(ctx(t), &policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: b})
		if err == nil {
			h.wrote(b)
		}
	})
	act(steps*2, func(r *rand.Rand, by client) { // a controller, which counts as it likes
		b := clone(c.getBudget("b"))
		b.Status.ObservedGeneration = b.Metadata.Generation
		b.Status.CurrentHealthy, b.Status.DesiredHealthy = int32(r.IntN(pods)), b.Spec.MinAvailable.IntVal
		b.Status.DisruptionsAllowed = int32(r.IntN(4))
		b.Status.DisruptedPods = nil
		b, err := by.PodDisruptionBudgets.UpdateStatus(ctx(t), &policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: b})
		if err == nil {
			h.wrote(b)
		}
	})
	all.Wait()
	finish()
	h.check()
}

// evictions is what watches saw of pods and budgets.
type evictions struct {
	t       *testing.T
	pods    []*corev1rpc.PodEvent
	budgets []*policyv1rpc.PodDisruptionBudgetEvent

	mu sync.Mutex
	// written has the revisions at which the test itself wrote the budget.
	written map[string]bool
}

// wrote notes a write of the budget that was acknowledged.
func (h *evictions) wrote(b *policyv1.PodDisruptionBudget) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written[b.Metadata.ResourceVersion] = true
}

// watch collects everything that happens until finish is called, which returns when both watches have it.
func (h *evictions) watch(c *cluster) (finish func()) {
	const end = "end"
	admin := c.admin()
	pods := must(admin.Pods.Watch(ctx(h.t), &metav1.WatchRequest{Namespace: "default"}))(h.t)
	budgets := must(admin.PodDisruptionBudgets.Watch(ctx(h.t), &metav1.WatchRequest{Namespace: "default"}))(h.t)
	must(pods.Header())(h.t) // they begin with the state as it is when they are accepted
	must(budgets.Header())(h.t)
	var both sync.WaitGroup
	both.Go(func() {
		for {
			batch, err := pods.Recv()
			if err != nil {
				h.t.Error(err)
				return
			}
			for _, e := range batch.Events {
				if e.Object.GetMetadata().GetName() == end {
					return
				}
				h.pods = append(h.pods, e)
			}
		}
	})
	both.Go(func() {
		for {
			batch, err := budgets.Recv()
			if err != nil {
				h.t.Error(err)
				return
			}
			for _, e := range batch.Events {
				if e.Object.GetMetadata().GetName() == end {
					return
				}
				h.budgets = append(h.budgets, e)
			}
		}
	})
	return func() {
		c.createPod(newPod(end))
		h.wrote(c.budget(end, 0, 0))
		both.Wait()
	}
}

// check goes through both histories in the order of the revisions.
func (h *evictions) check() {
	at := map[string]*policyv1.PodDisruptionBudget{}
	var order []*policyv1.PodDisruptionBudget
	for _, e := range h.budgets {
		at[e.Object.Metadata.ResourceVersion] = e.Object
		order = append(order, e.Object)
	}
	// before returns the budget as it was right before a revision.
	before := func(revision string) *policyv1.PodDisruptionBudget {
		i, _ := slices.BinarySearchFunc(order, number(h.t, revision), func(b *policyv1.PodDisruptionBudget, n int) int {
			return number(h.t, b.Metadata.ResourceVersion) - n
		})
		if i == 0 {
			return nil
		}
		return order[i-1]
	}
	live := map[string]*corev1.Pod{}
	explained := maps.Clone(h.written)
	counted, spared := 0, 0
	for _, e := range h.pods {
		now, revision := e.Object, e.Object.Metadata.ResourceVersion
		was := live[now.Metadata.Uid]
		live[now.Metadata.Uid] = now
		if was == nil || eviction.Exempt(was) || now.Metadata.DeletionTimestamp == nil ||
			target(now).GetReason() != disruption.ByEviction {
			continue
		}
		b, next := before(revision), at[revision]
		switch {
		case next != nil:
			counted++
			explained[revision] = true
			if b.Status.DisruptionsAllowed < 1 || next.Status.DisruptionsAllowed != b.Status.DisruptionsAllowed-1 ||
				b.Status.ObservedGeneration != b.Metadata.Generation || next.Status.DisruptedPods[now.Metadata.Name] == nil {
				h.t.Errorf("the eviction of %s at %s took from %v and left %v", now.Metadata.Name, revision, b, next)
			}
		case disruption.Healthy(was):
			h.t.Errorf("%s was healthy, and its eviction at %s took nothing from the budget", now.Metadata.Name, revision)
		default:
			spared++
			s := b.Status
			if b.Spec.GetUnhealthyPodEvictionPolicy() != disruption.AlwaysAllow &&
				(s.CurrentHealthy < s.DesiredHealthy || s.DesiredHealthy <= 0) {
				h.t.Errorf("%s, which was not ready, was evicted at %s from under %v", now.Metadata.Name, revision, b)
			}
		}
	}
	for _, b := range order {
		if !explained[b.Metadata.ResourceVersion] && b.Metadata.Generation > 0 && len(b.Status.Conditions) > 0 {
			h.t.Errorf("nobody was evicted at %s, and the budget became %v", b.Metadata.ResourceVersion, b)
		}
	}
	h.t.Logf("%d evictions were counted, %d went without", counted, spared)
}

func number(t *testing.T, revision string) int {
	t.Helper()
	return must(strconv.Atoi(revision))(t)
}
