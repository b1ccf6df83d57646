package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// A binding that loses a race is tried again after the back-off, and its room is free meanwhile.
// spec: SCHED-3
func TestLostRace(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		lose := true
		w.server.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Bind_FullMethodName && lose && req.(*corev1rpc.BindPodRequest).GetName() == "a" {
				return apierrors.NewConflict(corev1.PodKind, "a", "lost")
			}
			return nil
		})
		w.addNode(newNode("n1", "cpu=1", "memory=1Gi", "pods=10"))
		w.addPod(newPod("a", "cpu=1"))
		if n := w.nodeOf("a"); n != "" {
			w.Fatalf("bound to %s", n)
		}
		if n := w.calls().binds; n != 1 {
			t.Errorf("%d bindings although nothing was newer", n)
		}
		w.addPod(newPod("b", "cpu=1"))
		if n := w.nodeOf("b"); n != "n1" {
			w.Errorf("the room was not free: b on %q", n)
		}
		lose = false
		w.force("b")
		time.Sleep(11 * time.Second)
		if n := w.nodeOf("a"); n != "n1" {
			w.Errorf("not tried again: a on %q", n)
		}
	})
}

// When the answer to a binding is lost but the binding is not, the pod keeps its room and nothing is bound twice.
// spec: SCHED-3, LIFE-2
func TestLostAnswer(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		inside := false
		w.server.React(func(ctx context.Context, method string, req any) error {
			if method != corev1rpc.Pods_Bind_FullMethodName || inside {
				return nil
			}
			inside = true
			if _, err := w.c.Pods.Bind(ctx, req.(*corev1rpc.BindPodRequest)); err != nil {
				w.Error(err)
			}
			return apierrors.New(apierrors.ServiceUnavailable, "the connection broke")
		})
		w.addNode(newNode("n1", "cpu=1", "memory=1Gi", "pods=10"))
		w.addPod(newPod("a", "cpu=1"))
		if n := w.nodeOf("a"); n != "n1" {
			w.Errorf("a on %q", n)
		}
		w.addPod(newPod("b", "cpu=1"))
		time.Sleep(time.Minute)
		if n := w.nodeOf("b"); n != "" {
			w.Errorf("b was put beside a on %s", n)
		}
	})
}

// A binding carries the uid: a pod that takes the name of another is decided on its own.
// spec: DEL-11, SCHED-3
func TestSuccessor(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		var uids []string
		w.server.React(func(_ context.Context, method string, req any) error {
			if method != corev1rpc.Pods_Bind_FullMethodName {
				return nil
			}
			uids = append(uids, req.(*corev1rpc.BindPodRequest).GetObject().GetMetadata().GetUid())
			if len(uids) == 1 { // while the first is being bound, it is replaced
				w.force("a")
				w.addPod(newPod("a"))
			}
			return nil
		})
		w.addNode(newNode("n1"))
		first := w.addPod(newPod("a"))
		time.Sleep(time.Minute)
		p := w.pod("a")
		if p.GetSpec().GetNodeName() != "n1" || p.GetMetadata().GetUid() == first.GetMetadata().GetUid() {
			w.Errorf("got %v", p)
		}
		if len(uids) != 2 || uids[0] != first.GetMetadata().GetUid() || uids[1] != p.GetMetadata().GetUid() {
			w.Errorf("bound %v", uids)
		}
	})
}

// A late report of an unschedulable pod never overwrites that it was scheduled.
// spec: SCHED-6
func TestReportLosesToBinding(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		done := false
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_UpdateStatus_FullMethodName && !done {
				done = true // the report is on its way; meanwhile a node comes and the pod is bound
				w.createNode(newNode("n1"))
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		w.addPod(newPod("a"))
		time.Sleep(time.Minute)
		p := w.pod("a")
		if p.GetSpec().GetNodeName() != "n1" || reason(p) != "" {
			w.Errorf("bound to %q, condition %q", p.GetSpec().GetNodeName(), reason(p))
		}
		if !done {
			w.Error("nothing was tested")
		}
	})
}

// spec: SCHED-6
func TestFailedSchedulingEvent(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.addNode(newNode("n1"))
		w.addPod(newPod("a", "cpu=100"))
		time.Sleep(time.Hour) // a try every five minutes
		l, err := w.c.Events.List(context.Background(), &metav1.ListRequest{})
		w.must(nil, err)
		if len(l.GetItems()) != 1 {
			w.Fatalf("%d events", len(l.GetItems()))
		}
		e := l.GetItems()[0]
		if e.GetReason() != "FailedScheduling" || e.GetType() != "Warning" ||
			e.GetReportingComponent() != "default-scheduler" ||
			e.GetSeries().GetCount() < 12 || e.GetInvolvedObject().GetName() != "a" {
			w.Errorf("got %v", e)
		}
		if n := w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName); n != 1 {
			w.Errorf("%d status writes for one unchanged message", n)
		}
	})
}

// After a restart the pods that are bound count, and those that wait are tried.
func TestRestart(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.addNode(newNode("n1", "cpu=2", "memory=1Gi", "pods=10"))
		w.addPod(newPod("a", "cpu=2"))
		w.addPod(newPod("b", "cpu=1"))
		if w.nodeOf("a") != "n1" || w.nodeOf("b") != "" {
			w.Fatal("unexpected start")
		}
		stop := w.start(scheduler.Config{}) // a second scheduler is the worst kind of restart
		time.Sleep(time.Minute)
		if n := w.nodeOf("b"); n != "" {
			w.Errorf("b on %s", n)
		}
		w.force("a")
		time.Sleep(time.Minute)
		if n := w.nodeOf("b"); n != "n1" {
			w.Errorf("b on %q", n)
		}
		stop()
	})
}

// Whatever happens in whatever order, no node is ever given more than it has, and in the end every pod that fits is
// bound.
// spec: SCHED-3
func TestNeverOvercommits(t *testing.T) {
	for seed := range uint64(max(1, played()/2)) { //nolint:gosec // not negative
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			inWorld(t, scheduler.Config{Seed: seed + 1, Binders: 1 + rng.IntN(8)}, func(w *world) {
				var mu sync.Mutex
				fault := rand.New(rand.NewPCG(seed, 8))
				w.server.React(func(_ context.Context, method string, _ any) error {
					if method != corev1rpc.Pods_Bind_FullMethodName {
						return nil
					}
					mu.Lock()
					delay, kind := time.Duration(fault.IntN(50))*time.Millisecond, fault.IntN(6)
					mu.Unlock()
					time.Sleep(delay) // bindings overtake each other
					switch kind {
					case 0:
						return apierrors.New(apierrors.ServiceUnavailable, "down")
					case 1:
						return apierrors.NewConflict(corev1.PodKind, "x", "lost")
					}
					return nil
				})
				for i := range 6 {
					w.addNode(newNode(fmt.Sprint("n", i), "cpu=4", "memory=8Gi", "pods=6"))
				}
				live := map[string]bool{}
				for i := range 300 {
					name := fmt.Sprint("p", rng.IntN(60))
					switch {
					case rng.IntN(40) == 0:
						w.server.Cut()
					case rng.IntN(60) == 0:
						w.server.Expire()
					case live[name]:
						w.force(name)
						delete(live, name)
					default:
						w.addPod(newPod(name, fmt.Sprintf("cpu=%dm", 100*(1+rng.IntN(20))),
							fmt.Sprintf("memory=%dMi", 64*(1+rng.IntN(20)))))
						live[name] = true
					}
					if i%5 == 0 {
						time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					}
					w.checkRoom()
				}
				w.server.React(nil)
				time.Sleep(10 * time.Minute)
				w.checkRoom()
				w.checkNothingFits()
			})
		})
	}
}

// usage adds up what is bound to each node, by the server's word.
func (w *world) usage() (used map[string]framework.Resources, count map[string]int, waiting []*corev1.Pod) {
	w.Helper()
	l, err := w.c.Pods.List(context.Background(), &metav1.ListRequest{})
	w.must(nil, err)
	used, count = map[string]framework.Resources{}, map[string]int{}
	for _, p := range l.GetItems() {
		n := p.GetSpec().GetNodeName()
		if n == "" {
			waiting = append(waiting, p)
			continue
		}
		used[n] = used[n].Add(framework.PodRequests(p.GetSpec()))
		count[n]++
	}
	return used, count, waiting
}

func (w *world) checkRoom() {
	w.Helper()
	used, count, _ := w.usage()
	for n, u := range used {
		if u.MilliCPU > 4000 || u.Memory > 8<<30 || count[n] > 6 {
			w.Fatalf("node %s holds %d pods with %+v", n, count[n], u)
		}
	}
}

func (w *world) checkNothingFits() {
	w.Helper()
	synctest.Wait()
	used, count, waiting := w.usage()
	for _, p := range waiting {
		r := framework.PodRequests(p.GetSpec())
		for i := range 6 {
			n := fmt.Sprint("n", i)
			if sum := used[n].Add(r); sum.MilliCPU <= 4000 && sum.Memory <= 8<<30 && count[n] < 6 {
				w.Errorf("%s waits although it fits on %s", p.GetMetadata().GetName(), n)
			}
		}
	}
}

// Decisions change nothing that is shared: the mutation of one object would be everybody's.
func TestMutatesNothing(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		n := newNode("n1")
		w.addNode(n)
		before := map[string]proto.Message{}
		for i := range 20 {
			p := w.addPod(newPod(fmt.Sprint("p", i), "cpu=1"))
			before[p.GetMetadata().GetName()] = proto.Clone(p.GetSpec())
		}
		synctest.Wait()
		for name, spec := range before {
			s := w.pod(name).GetSpec()
			if s.GetNodeName() != "" {
				spec.(*corev1.PodSpec).NodeName = s.GetNodeName()
			}
			if !proto.Equal(spec, s) {
				w.Errorf("%s was changed: %v", name, s)
			}
		}
	})
}
