package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/test/naive"
	"monoplane.dev/scheduler/test/scenario"
)

// explain asks about a pod as it is.
func (w *world) explain(p *corev1.Pod) *schedulingv1.PlacementReviewStatus {
	w.Helper()
	st, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: p})
	w.must(nil, err)
	return st
}

// spec: SCHED-6
func TestExplain(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.addNode(newNode("n1", "cpu=2", "memory=1Gi", "pods=9"))
		w.addNode(newNode("n2", "cpu=2", "memory=1Gi", "pods=9"))
		tainted := newNode("n3", "cpu=500m", "memory=1Gi", "pods=9")
		tainted.Spec.Taints = []*corev1.Taint{{Key: "k", Effect: "NoSchedule"}}
		w.addNode(tainted)

		imagined := w.explain(newPod("imagined", "cpu=1"))
		if imagined.GetMessage() != "2/3 nodes are available: the pod would go to n1 or n2, which score alike." ||
			imagined.GetFitCount() != 2 || imagined.GetNodeCount() != 3 || imagined.GetQueue() != nil {
			t.Errorf("imagined: %v", imagined)
		}
		last := imagined.GetNodes()[2]
		if last.GetName() != "n3" || last.GetRefusedBy().GetPlugin() != "TaintToleration" ||
			last.GetRefusedBy().GetResolvable() || last.Total != nil {
			t.Errorf("the last node: %v", last)
		}
		// What is left to mend once the taint is gone.
		if also := last.GetAlsoRefusedBy(); len(also) != 1 || also[0].GetPlugin() != "NodeResourcesFit" ||
			len(also[0].GetReasons()) == 0 {
			t.Errorf("the last node is also refused by %v", also)
		}
		sum := int64(0)
		for _, s := range imagined.GetNodes()[0].GetScores() {
			sum += s.GetScore() * s.GetWeight()
		}
		if sum == 0 || sum != imagined.GetNodes()[0].GetTotal() {
			t.Errorf("the scores make %d: %v", sum, imagined.GetNodes()[0])
		}

		w.addPod(newPod("first", "cpu=1"))
		first := w.pod("first")
		if st := w.explain(first); st.GetHolds()[0].GetReason() != "Binding" ||
			!strings.Contains(st.GetMessage(), first.GetSpec().GetNodeName()) {
			t.Errorf("bound: %v", st)
		}
		if st := w.explain(newPod("next", "cpu=1")); st.GetNodes()[0].GetName() == first.GetSpec().GetNodeName() ||
			!strings.HasSuffix(st.GetMessage(), "the pod would go to "+st.GetNodes()[0].GetName()+".") {
			t.Errorf("beside the first: %v", st)
		}

		w.addPod(newPod("big", "cpu=64"))
		big := w.explain(w.pod("big"))
		if "Unschedulable: "+big.GetMessage() != reason(w.pod("big")) || big.GetFitCount() != 0 {
			t.Errorf("big: %q, but its condition says %q", big.GetMessage(), reason(w.pod("big")))
		}
		if q := big.GetQueue(); q.GetState() != "Unschedulable" || q.GetAttempts() != 1 ||
			!slices.Contains(q.GetWaitsFor(), "NodeResourcesFit") ||
			q.GetNextTry() == nil {
			t.Errorf("its queue: %v", q)
		}

		gated := newPod("gated", "cpu=1")
		gated.Spec.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
		w.addPod(gated)
		st := w.explain(w.pod("gated"))
		if st.GetHolds()[0].GetReason() != "SchedulingGated" || st.GetQueue().GetState() != "Gated" ||
			st.GetFitCount() != 2 ||
			!strings.HasPrefix(st.GetMessage(),
				"Scheduling is blocked due to non-empty scheduling gates (a, b); otherwise: 2/3 nodes") {
			t.Errorf("gated: %v", st)
		}

		some, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod("x"),
			Nodes: []string{"n3", "nowhere", "n1", "nowhere"}})
		w.must(nil, err)
		var names []string
		for _, n := range some.GetNodes() {
			names = append(names, n.GetName())
		}
		if !slices.Equal(names, []string{"n1", "n3", "nowhere"}) || some.GetNodeCount() != 3 {
			t.Errorf("of some nodes: %v", some)
		}
		some, err = w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod("x"), Limit: 1})
		w.must(nil, err)
		if len(some.GetNodes()) != 1 || some.GetFitCount() != 2 {
			t.Errorf("limited: %v", some)
		}
		other := newPod("x")
		other.Spec.SchedulerName = "other"
		if _, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: other}); !apierrors.Is(err,
			apierrors.NotFound) {
			t.Errorf("another scheduler's: %v", err)
		}
	})
}

// A pod for which others go says which, before and while they do. spec: PREEMPT-2
func TestExplainPreemption(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.addNode(newNode("n1", "cpu=2", "memory=1Gi", "pods=9"))
		victim := ranked("victim", 1, "2")
		victim.Metadata.Finalizers = []string{"test/hold"}
		w.addPod(victim)
		synctest.Wait()
		high := ranked("high", 10, "2")
		if p := w.explain(high).GetPreemption(); p.GetBegun() || p.GetNodeName() != "n1" ||
			!slices.Equal(p.GetVictims(), []string{"ns/victim"}) {
			t.Errorf("before: %v", p)
		}
		if w.pod("victim").GetMetadata().GetDeletionTimestamp() != nil {
			t.Fatal("the question deleted the victim")
		}
		w.addPod(high)
		st := w.explain(w.pod("high"))
		if p := st.GetPreemption(); !p.GetBegun() || p.GetNodeName() != "n1" ||
			!slices.Equal(p.GetVictims(), []string{"ns/victim"}) {
			t.Errorf("meanwhile: %v", st)
		}
	})
}

// slow holds the decision loop: in Filter, the pod "block" waits for the channel, and pods "slow" take 10 ms.
type slow struct{ free chan struct{} }

func (slow) Name() string { return "Slow" }

func (s slow) Filter(_ *framework.CycleState, p *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	switch p.Key.Name {
	case "block":
		<-s.free
	case "slow":
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func inSlowWorld(t *testing.T, f func(w *world, free chan struct{})) {
	t.Helper()
	var free chan struct{}
	inWorldWith(t, func(c *client.Client) scheduler.Config {
		free = make(chan struct{})
		p, err := framework.NewProfile(scheduler.DefaultName, 0, append(scheduler.DefaultPlugins(c),
			framework.Enabled{Plugin: slow{free}})...)
		if err != nil {
			t.Fatal(err)
		}
		return scheduler.Config{Profiles: []*framework.Profile{p}}
	}, func(w *world) {
		w.addNode(newNode("n1", "cpu=1000", "memory=1Ti", "pods=1000"))
		f(w, free)
	})
}

// While the loop is held, a bounded number of questions wait, those whose caller has gone are dropped, and the others
// are told when it takes too long.
func TestQuestionsAreBounded(t *testing.T) {
	inSlowWorld(t, func(w *world, free chan struct{}) {
		w.addPod(newPod("block"))
		synctest.Wait()
		const most = 16
		ctx, leave := context.WithCancel(context.Background())
		errs := make(chan error, most)
		for i := range most {
			c := context.Background()
			if i == 0 {
				c = ctx
			}
			go func() {
				_, err := w.s.Explain(c, &schedulingv1rpc.ExplainCall{Pod: newPod("slow")})
				errs <- err
			}()
		}
		synctest.Wait()
		if _, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod("x")}); !apierrors.Is(err,
			apierrors.TooManyRequests) {
			t.Errorf("one too many: %v", err)
		}
		began := time.Now()
		leave()
		if err := <-errs; err == nil || time.Since(began) != 0 {
			t.Errorf("who leaves gets %v after %s", err, time.Since(began))
		}
		for range most - 1 {
			if err := <-errs; !apierrors.Is(err, apierrors.Timeout) || time.Since(began) != 5*time.Second {
				t.Errorf("who waits gets %v after %s", err, time.Since(began))
			}
		}
		began = time.Now()
		close(free)
		synctest.Wait()
		if _, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod("slow")}); err != nil ||
			time.Since(began) > 10*time.Millisecond {
			t.Errorf("afterwards: %v after %s: questions that nobody waits for were answered", err, time.Since(began))
		}
	})
}

// Questions that take long do not keep pods from being decided on.
func TestQuestionsDoNotStarvePods(t *testing.T) {
	inSlowWorld(t, func(w *world, free chan struct{}) {
		w.addPod(newPod("block"))
		const pods, asked = 50, 10
		for i := range pods {
			w.addPod(newPod(fmt.Sprint("p", i)))
		}
		synctest.Wait()
		answered := make(chan error, asked)
		for range asked {
			go func() {
				_, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod("slow")})
				answered <- err
			}()
		}
		synctest.Wait()
		close(free)
		time.Sleep(15 * time.Millisecond) // time for one question
		for i := range pods {
			if w.nodeOf(fmt.Sprint("p", i)) == "" {
				t.Fatalf("pod %d waits for questions", i)
			}
		}
		for range asked {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}

// A plugin that panics about an imagined pod fails the question, and nothing else.
func TestPanicInQuestion(t *testing.T) {
	var off atomic.Bool
	inWorldWith(t, func(c *client.Client) scheduler.Config {
		p, err := framework.NewProfile(scheduler.DefaultName, 0, append(scheduler.DefaultPlugins(c),
			framework.Enabled{Plugin: bomb{&off}})...)
		if err != nil {
			t.Fatal(err)
		}
		return scheduler.Config{Profiles: []*framework.Profile{p}}
	}, func(w *world) {
		w.addNode(newNode("n1"))
		w.addNode(newNode("n2"))
		for _, point := range []string{"prefilter", "filter", "prescore", "score"} {
			_, err := w.s.Explain(context.Background(), &schedulingv1rpc.ExplainCall{Pod: newPod(point)})
			if !apierrors.Is(err, apierrors.InternalError) || !strings.Contains(err.Error(), "a plugin panicked: boom at") {
				t.Errorf("%s: %v", point, err)
			}
		}
		if st := w.explain(newPod("other")); st.GetFitCount() != 2 {
			t.Errorf("afterwards: %v", st)
		}
		w.addPod(newPod("other"))
		if w.nodeOf("other") == "" {
			t.Error("the loop has ended")
		}
	})
}

// taken makes of a random pod one that the server takes: it has nothing yet of which overhead could come, nor
// resources of whole pods, nor images as volumes; and nobody gets more of an extended resource than requested.
func taken(p *corev1.Pod) {
	p.Spec.Overhead, p.Spec.Resources = nil, nil
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes,
		func(v *corev1.Volume) bool { return v.GetVolumeSource().GetImage() != nil })
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			port.ContainerPort = max(port.HostPort, 1)
		}
		for k, v := range c.GetResources().GetRequests() {
			if strings.Contains(k, "/") {
				if c.Resources.Limits == nil {
					c.Resources.Limits = map[string]*metav1.Quantity{}
				}
				c.Resources.Limits[k] = v
			}
		}
	}
}

// What a review says about an imagined pod is what happens to it once it is created: it goes to one of the best nodes,
// or is refused with the same words, and the same pods go for it.
//
// spec: SCHED-6
func TestReviewIsWhatHappens(t *testing.T) {
	fit, refused, preempting := 0, 0, 0
	create := func(w *world, p *corev1.Pod) error {
		_, err := w.c.Pods.Create(context.Background(),
			&corev1rpc.CreatePodRequest{Namespace: p.Metadata.Namespace, Object: p})
		return err
	}
	seeds := 4 * played()
	for seed := range uint64(seeds) { //nolint:gosec // not negative
		d := naive.NewDice(seed)
		c := d.Cluster()
		inWorld(t, scheduler.Config{}, func(w *world) {
			w.server.Namespaces(w, "other")
			for _, n := range c.Nodes() {
				_, err := w.server.Agent(n.Metadata.Name).Nodes.Create(context.Background(),
					&corev1rpc.CreateNodeRequest{Object: object.Clone(n)})
				if !apierrors.Is(err, apierrors.Invalid) { // what nobody can create is not there
					w.must(nil, err)
				}
			}
			for _, p := range c.Pods() {
				p = object.Clone(p)
				p.Metadata.Uid, p.Metadata.Finalizers = "", []string{"test/hold"}
				taken(p)
				scenario.Classify(w, w.c, p)
				if err := create(w, p); !apierrors.Is(err, apierrors.Invalid) {
					w.must(nil, err)
				}
			}
			synctest.Wait()
			pod := d.Pending("new")
			pod.Metadata.Namespace, pod.Metadata.Uid, pod.Spec.SchedulerName = "ns", "", scheduler.DefaultName
			pod.Spec.NodeName = ""
			taken(pod)
			if d.IntN(2) == 0 {
				pod.Spec.Priority = new(int32)
				*pod.Spec.Priority = 1000
			}
			said := w.explain(pod)
			scenario.Classify(w, w.c, pod)
			err := create(w, pod)
			if apierrors.Is(err, apierrors.Invalid) {
				return
			}
			w.must(nil, err)
			got := w.pod("new")
			if said.GetFitCount() == 0 {
				refused++
				if reason(got) != "Unschedulable: "+said.GetMessage() {
					t.Errorf("seed %d: said %q\nwas %q", seed, said.GetMessage(), reason(got))
				}
				if want := said.GetPreemption().GetNodeName(); want != "" {
					preempting++
					if got.GetStatus().GetNominatedNodeName() == "" {
						t.Errorf("seed %d: said that room would be made on %s", seed, want)
					}
				}
				return
			}
			fit++
			at := slices.IndexFunc(said.GetNodes(), func(n *schedulingv1.PlacementNode) bool {
				return n.GetName() == got.GetSpec().GetNodeName()
			})
			if at < 0 || !said.GetNodes()[at].GetFits() || said.GetNodes()[at].GetTotal() != said.GetNodes()[0].GetTotal() {
				t.Errorf("seed %d: said %q, but it went to %q (%s)", seed, said.GetMessage(), got.GetSpec().GetNodeName(),
					reason(got))
			}
		})
	}
	t.Logf("%d seeds: %d fit, %d refused, %d preempting", seeds, fit, refused, preempting)
	if fit < seeds/5 || refused < seeds/5 || preempting < seeds/30 {
		t.Errorf("%d fit, %d refused, %d preempting: too few", fit, refused, preempting)
	}
}
