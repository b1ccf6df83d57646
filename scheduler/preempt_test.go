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
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
)

// ranked is a pod of a priority that takes cpus.
func ranked(name string, priority int32, cpu string) *corev1.Pod {
	p := newPod(name, "cpu="+cpu)
	p.Spec.Priority = &priority
	return p
}

// on keeps a pod to a node.
func on(node string, p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node}
	return p
}

// full has nodes of two cpus, each with two pods of one, which are of priority 1 on the first node, 2 on the second
// and so on.
func (w *world) full(nodes int) {
	w.Helper()
	for i := range nodes {
		name := fmt.Sprint("n", i+1)
		w.addNode(newNode(name, "cpu=2", "memory=8Gi", "pods=10"))
		for _, side := range []string{"a", "b"} {
			w.addPod(on(name, ranked(name+side, int32(i+1), "1"))) //nolint:gosec // small
			if w.nodeOf(name+side) != name {
				w.Fatalf("%s%s is on %q", name, side, w.nodeOf(name+side))
			}
		}
	}
	time.Sleep(2 * time.Second) // virtual
}

// terminating returns the names of the pods on their way out.
func (w *world) terminating() string {
	w.Helper()
	synctest.Wait()
	list, err := w.c.Pods.List(context.Background(), &metav1.ListRequest{})
	w.must(nil, err)
	var names []string
	for _, p := range list.GetItems() {
		if p.GetMetadata().GetDeletionTimestamp() != nil {
			names = append(names, p.GetMetadata().GetName())
		}
	}
	return strings.Join(names, " ")
}

func (w *world) nominated(name string) string {
	w.Helper()
	return w.pod(name).GetStatus().GetNominatedNodeName()
}

// Victims are told apart from other deletions, get their grace, and are deleted by uid.
// spec: PREEMPT-2, PREEMPT-4
func TestVictims(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		defer w.agents()()
		var deletions []*metav1.DeleteRequest
		w.full(2)
		w.server.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Delete_FullMethodName && req.(*metav1.DeleteRequest).GracePeriodSeconds == nil {
				deletions = append(deletions, req.(*metav1.DeleteRequest))
			}
			return nil
		})
		preemptor := w.addPod(ranked("new", 10, "2"))
		if got := w.terminating(); got != "n1a n1b" || w.nominated("new") != "n1" || w.nodeOf("new") != "" {
			t.Fatalf("terminating: %q, nominated to %q, on %q", got, w.nominated("new"), w.nodeOf("new"))
		}
		if len(deletions) != 2 {
			t.Fatalf("%d deletions", len(deletions))
		}
		for _, d := range deletions {
			v := w.pod(d.GetName())
			if d.GetOptions().GetPreconditions().GetUid() != v.Metadata.Uid || d.GetOptions().GracePeriodSeconds != nil {
				t.Errorf("deleted by %v", d)
			}
			i := slices.IndexFunc(v.Status.Conditions, func(c *corev1.PodCondition) bool {
				return c.Type == "DisruptionTarget"
			})
			if i < 0 {
				t.Fatalf("%s has conditions %v", d.GetName(), v.Status.Conditions)
			}
			c := v.Status.Conditions[i]
			if c.Status != "True" || c.Reason != "PreemptionByScheduler" || c.LastTransitionTime == nil ||
				c.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
				t.Errorf("%s has condition %v", d.GetName(), c)
			}
		}
		list, err := w.c.Events.List(context.Background(), &metav1.ListRequest{Namespace: "ns"})
		w.must(nil, err)
		told := map[string]string{}
		for _, e := range list.GetItems() {
			if e.GetReason() == "Preempted" {
				told[e.GetInvolvedObject().GetName()] = e.GetType() + " " + e.GetMessage()
			}
		}
		want := "Normal Preempted by pod " + preemptor.Metadata.Uid + " on node n1"
		if len(told) != 2 || told["n1a"] != want || told["n1b"] != want {
			t.Errorf("events %v", told)
		}
		time.Sleep(29 * time.Second)
		if w.pod("n1a") == nil || w.nodeOf("new") != "" {
			t.Error("the victims do not have their grace")
		}
		time.Sleep(15 * time.Second) // it may be in its back-off when the second one ends
		if w.nodeOf("new") != "n1" || w.nominated("new") != "" {
			t.Errorf("on %q, nominated to %q", w.nodeOf("new"), w.nominated("new"))
		}
		if w.nodeOf("n2a") != "n2" || w.nodeOf("n2b") != "n2" {
			t.Error("another node has lost its pods")
		}
	})
}

// A pod whose victims are on their way out preempts no more, however often it is tried.
// spec: PREEMPT-4
func TestPreemptsOnce(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		defer w.agents()()
		w.full(2)
		w.addPod(ranked("new", 10, "2"))
		for i := range 25 {
			n, err := w.c.Nodes.Get(context.Background(), &metav1.GetRequest{Name: "n2"})
			w.must(nil, err)
			n = object.Clone(n)
			n.Status.Allocatable = quantities(fmt.Sprint("cpu=", 3+i), "memory=8Gi", "pods=2") // more cpu, but not more pods
			w.must(w.c.Nodes.UpdateStatus(context.Background(), &corev1rpc.UpdateNodeRequest{Object: n}))
			time.Sleep(time.Second)
			if got := w.terminating(); got != "n1a n1b" {
				t.Fatalf("after %d s: %q", i, got)
			}
		}
		const waiting = "not eligible due to a terminating pod on the nominated node."
		if got := reason(w.pod("new")); !strings.Contains(got, waiting) {
			t.Errorf("it was not tried again: %q", got)
		}
		if w.nominated("new") != "n1" {
			t.Errorf("nominated to %q", w.nominated("new"))
		}
		time.Sleep(20 * time.Second)
		if w.nodeOf("new") != "n1" {
			t.Errorf("on %q", w.nodeOf("new"))
		}
	})
}

// Victims count as on their way out from the decision on, not only once their deletion is seen: a server that is slow
// to delete them does not make the pod preempt on another node too, where others would even be cheaper.
// spec: PREEMPT-4
func TestVictimsCountBeforeTheyAreDeleted(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		defer w.agents()()
		w.full(1)
		var slow atomic.Int32
		w.server.React(func(_ context.Context, _ string, req any) error {
			if p, ok := req.(*corev1rpc.UpdatePodRequest); ok && p.GetFieldManager() == "scheduler" && p.GetName() != "new" {
				slow.Add(1)
				time.Sleep(8 * time.Second) // virtual; less than what a deletion may take
			}
			return nil
		})
		w.addPod(ranked("new", 10, "2"))
		time.Sleep(2 * time.Second) // virtual: its back-off
		if got := w.terminating(); got != "" || w.nominated("new") != "n1" || slow.Load() != 1 {
			t.Fatalf("terminating: %q, nominated to %q, %d victims marked", got, w.nominated("new"), slow.Load())
		}
		n2 := newNode("n2", "cpu=2", "memory=8Gi", "pods=10")
		n2.Spec.Unschedulable = true
		w.addNode(n2)
		cheap := ranked("cheap", 0, "2")
		cheap.Spec.NodeName = "n2"
		w.addPod(cheap)
		closed, err := w.c.Nodes.Get(context.Background(), &metav1.GetRequest{Name: "n2"})
		w.must(nil, err)
		open := object.Clone(closed)
		open.Spec.Unschedulable = false
		w.must(w.c.Nodes.Update(context.Background(), &corev1rpc.UpdateNodeRequest{Object: open}))
		time.Sleep(2 * time.Second) // virtual
		if got := reason(w.pod("new")); !strings.Contains(got,
			"not eligible due to a terminating pod on the nominated node.") {
			t.Errorf("it was not tried again, or preempted again: %q", got)
		}
		if got := w.terminating(); got != "" || w.nominated("new") != "n1" || slow.Load() != 1 {
			t.Errorf("terminating: %q, nominated to %q, %d victims marked", got, w.nominated("new"), slow.Load())
		}
		time.Sleep(15 * time.Second) // virtual
		if got := w.terminating(); got != "n1a n1b" {
			t.Errorf("terminating: %q", got)
		}
	})
}

// When a victim cannot be marked or deleted the nomination is undone, and the pod tries again after a back-off.
// spec: PREEMPT-2
func TestEvictionFails(t *testing.T) {
	for _, method := range []string{corev1rpc.Pods_UpdateStatus_FullMethodName, corev1rpc.Pods_Delete_FullMethodName} {
		t.Run(method, func(t *testing.T) {
			inWorld(t, scheduler.Config{}, func(w *world) {
				defer w.agents()()
				w.full(1)
				var failures atomic.Int32
				w.server.React(func(_ context.Context, m string, req any) error {
					if m != method {
						return nil
					}
					if p, ok := req.(*corev1rpc.UpdatePodRequest); ok && p.GetName() == "new" {
						return nil
					}
					failures.Add(1)
					return apierrors.New(apierrors.ServiceUnavailable, "down")
				})
				w.addPod(ranked("new", 10, "2"))
				if got := w.terminating(); got != "" || w.nominated("new") != "" || failures.Load() != 1 {
					t.Fatalf("terminating: %q, nominated to %q, %d failures", got, w.nominated("new"), failures.Load())
				}
				time.Sleep(30 * time.Second) // virtual
				if n := failures.Load(); n < 3 || n > 8 {
					t.Errorf("%d tries", n)
				}
				w.server.React(nil)
				time.Sleep(time.Minute) // virtual: a back-off and the grace
				if got := w.nodeOf("new"); got != "n1" {
					t.Errorf("on %q", got)
				}
			})
		})
	}
}

// Pods that could not be evicted are nobody's victims any more: a later preemption on the node counts its own ones
// only.
// spec: PREEMPT-2, PREEMPT-4
func TestVictimsAreSpared(t *testing.T) {
	inWorld(t, scheduler.Config{InitialBackoff: time.Minute, MaxBackoff: time.Minute}, func(w *world) {
		w.full(1)
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_Delete_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.addPod(ranked("new", 10, "2"))
		if got := w.terminating(); got != "" || w.nominated("new") != "" {
			t.Fatalf("terminating: %q, nominated to %q", got, w.nominated("new"))
		}
		w.server.React(nil)
		w.force("new")
		later := w.addPod(ranked("later", 10, "1"))
		victim := w.terminating()
		if w.nominated("later") != "n1" || victim != "n1a" && victim != "n1b" {
			t.Fatalf("terminating: %q, nominated to %q", victim, w.nominated("later"))
		}
		if got := w.explain(later).GetPreemption().GetVictims(); !slices.Equal(got, []string{"ns/" + victim}) {
			t.Errorf("victims %v, want %s", got, victim)
		}
	})
}

// That a nomination was undone is not overtaken by the report of the nomination, however slow that is.
// spec: PREEMPT-2
func TestReportsKeepTheirOrder(t *testing.T) {
	inWorld(t, scheduler.Config{InitialBackoff: time.Hour, MaxBackoff: time.Hour}, func(w *world) {
		w.full(1)
		var slow atomic.Bool
		w.server.React(func(_ context.Context, method string, req any) error {
			switch p, ok := req.(*corev1rpc.UpdatePodRequest); {
			case ok && p.GetName() == "new" && slow.CompareAndSwap(false, true):
				time.Sleep(time.Second) // virtual
			case method == corev1rpc.Pods_Delete_FullMethodName:
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.addPod(ranked("new", 10, "2"))
		time.Sleep(10 * time.Second) // virtual
		if got := w.nominated("new"); got != "" || !slow.Load() {
			t.Errorf("nominated to %q", got)
		}
		if got := reason(w.pod("new")); got == "" {
			t.Error("it does not say why it waits")
		}
	})
}

// A pod that takes the name of a victim is not deleted in its place, and one that is gone already is not missed.
// spec: PREEMPT-2, DEL-11
func TestVictimIsReplaced(t *testing.T) {
	for _, method := range []string{corev1rpc.Pods_UpdateStatus_FullMethodName, corev1rpc.Pods_Delete_FullMethodName} {
		for _, successor := range []bool{true, false} {
			t.Run(fmt.Sprint(method, " ", successor), func(t *testing.T) {
				inWorld(t, scheduler.Config{}, func(w *world) {
					w.full(1)
					var done atomic.Bool // reports of several pods are written at once
					w.server.React(func(_ context.Context, m string, req any) error {
						named, ok := req.(interface{ GetName() string })
						if !ok || m != method || named.GetName() == "new" || !done.CompareAndSwap(false, true) {
							return nil
						}
						w.force(named.GetName())
						if successor {
							p := ranked(named.GetName(), 1, "1")
							p.Spec.NodeSelector = map[string]string{"no": "where"}
							w.addPod(p)
						}
						return nil
					})
					w.addPod(ranked("new", 10, "1"))
					time.Sleep(15 * time.Second) // virtual
					if got := w.terminating(); got != "" || w.nodeOf("new") != "n1" {
						t.Errorf("terminating: %q, on %q", got, w.nodeOf("new"))
					}
					left := 0
					for _, name := range []string{"n1a", "n1b"} {
						if p := w.pod(name); p != nil {
							left++
							if p.GetSpec().GetNodeName() == "" && len(p.GetStatus().GetConditions()) > 1 {
								t.Errorf("the successor is marked: %v", p.GetStatus().GetConditions())
							}
						}
					}
					if want := map[bool]int{true: 2, false: 1}[successor]; left != want {
						t.Errorf("%d of the old names are left, want %d", left, want)
					}
				})
			})
		}
	}
}

// A scheduler that starts while victims end knows from the pod's status on which node room is made: it keeps the room,
// and makes no more.
// spec: PREEMPT-2, PREEMPT-4
func TestRestartWhileVictimsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.agents()()
		stop := w.start(scheduler.Config{})
		synctest.Wait()
		w.full(2)
		w.addPod(ranked("new", 10, "2"))
		if got := w.terminating(); got != "n1a n1b" || w.nominated("new") != "n1" {
			t.Fatalf("terminating: %q, nominated to %q", got, w.nominated("new"))
		}
		stop()
		time.Sleep(10 * time.Second) // virtual
		w.addPod(ranked("lower", 9, "1"))
		w.addPod(ranked("equal", 10, "1"))
		w.addNode(newNode("n3", "cpu=2", "memory=8Gi", "pods=10"))
		for _, name := range []string{"n3a", "n3b"} { // cheaper victims, which a pod without a nomination would take
			p := ranked(name, 0, "1")
			p.Spec.NodeName = "n3"
			w.addPod(p)
		}
		defer w.start(scheduler.Config{Seed: 2})()
		time.Sleep(10 * time.Second) // virtual
		// The others make room on the third node, since the first is not for them.
		if got := w.terminating(); got != "n1a n1b n3a n3b" || w.nominated("new") != "n1" || w.nominated("lower") != "n3" {
			t.Errorf("terminating: %q, nominated to %q and %q", got, w.nominated("new"), w.nominated("lower"))
		}
		time.Sleep(40 * time.Second) // virtual
		if w.nodeOf("new") != "n1" || w.nodeOf("lower") != "n3" || w.nodeOf("equal") != "n3" {
			t.Errorf("on %q, %q and %q", w.nodeOf("new"), w.nodeOf("lower"), w.nodeOf("equal"))
		}
	})
}

// The room stays free for the pod while it waits for its back-off: others of lower or the same priority do not take
// it, a higher one does. Then the nomination is cleared.
//
// spec: PREEMPT-2
func TestRoomIsHeld(t *testing.T) {
	inWorld(t, scheduler.Config{InitialBackoff: time.Minute, MaxBackoff: time.Minute}, func(w *world) {
		w.full(1)
		w.server.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Bind_FullMethodName && req.(*corev1rpc.BindPodRequest).GetName() == "new" {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.addPod(ranked("new", 10, "2"))
		if got := w.terminating(); got != "n1a n1b" {
			t.Fatalf("terminating: %q", got)
		}
		w.force("n1a")
		w.force("n1b")
		w.addPod(ranked("lower", 9, "1"))
		w.addPod(ranked("equal", 10, "1"))
		for _, name := range []string{"new", "lower", "equal"} {
			if got := w.nodeOf(name); got != "" {
				t.Errorf("%s is on %q", name, got)
			}
		}
		if got := w.nominated("new"); got != "n1" {
			t.Errorf("nominated to %q", got)
		}
		w.addPod(ranked("higher", 11, "1"))
		if got := w.nodeOf("higher"); got != "n1" {
			t.Errorf("the higher one is on %q", got)
		}
		w.server.React(nil)
		time.Sleep(2 * time.Minute) // virtual
		if w.nodeOf("new") != "" || w.nominated("new") != "" {
			t.Errorf("on %q, nominated to %q", w.nodeOf("new"), w.nominated("new"))
		}
	})
}

// When a pod that room was kept for is deleted, those that were kept out are tried again.
// spec: PREEMPT-2, SCHED-2
func TestRoomIsGivenBack(t *testing.T) {
	inWorld(t, scheduler.Config{InitialBackoff: time.Minute, MaxBackoff: time.Minute}, func(w *world) {
		w.full(1)
		w.server.React(func(_ context.Context, method string, req any) error {
			if method == corev1rpc.Pods_Bind_FullMethodName && req.(*corev1rpc.BindPodRequest).GetName() == "new" {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.addPod(ranked("new", 10, "2"))
		if got := w.terminating(); got != "n1a n1b" {
			t.Fatalf("terminating: %q", got)
		}
		w.force("n1a")
		w.force("n1b")
		if got := w.nodeOf("new"); got != "" {
			t.Fatalf("new is on %q", got)
		}
		w.addPod(ranked("lower", 9, "1"))
		time.Sleep(10 * time.Second) // virtual; both have been tried once
		if got := w.nodeOf("lower"); got != "" {
			t.Fatalf("lower is on %q", got)
		}
		w.force("new")
		time.Sleep(70 * time.Second) // virtual
		if got := w.nodeOf("lower"); got != "n1" {
			t.Errorf("lower is on %q", got)
		}
	})
}

// With disablePreemption nobody is preempted.
// spec: PREEMPT-3
func TestDisabledPreemption(t *testing.T) {
	profiles := profilesOf(t,
		"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\ndisablePreemption: true\n")
	inWorldWith(t, func(c *client.Client) scheduler.Config { return scheduler.Config{Profiles: profiles(c)} },
		func(w *world) {
			w.full(1)
			w.addPod(ranked("new", 10, "2"))
			time.Sleep(10 * time.Minute) // virtual
			if got := w.terminating(); got != "" || w.nominated("new") != "" {
				t.Errorf("terminating: %q, nominated to %q", got, w.nominated("new"))
			}
			if got := reason(w.pod("new")); got != "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu." {
				t.Errorf("it says %q", got)
			}
		})
}
