package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
	"monoplane.dev/scheduler"
)

// changeNode writes a changed node and its status.
func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.Helper()
	n, err := w.c.Nodes.Get(context.Background(), &metav1.GetRequest{Name: name})
	w.must(nil, err)
	n = object.Clone(n)
	change(n)
	n.Metadata.ResourceVersion = ""
	w.must(w.c.Nodes.Update(context.Background(), &corev1rpc.UpdateNodeRequest{Object: n}))
	w.must(w.c.Nodes.UpdateStatus(context.Background(), &corev1rpc.UpdateNodeRequest{Object: n}))
}

// heartbeat writes a node status in which nothing has changed that a decision depends on.
func (w *world) heartbeat(name string) {
	w.Helper()
	w.changeNode(name, func(n *corev1.Node) {
		n.Status.Conditions = []*corev1.NodeCondition{{Type: "Ready", Status: "True", Message: "after " +
			n.Metadata.ResourceVersion}}
	})
}

func (w *world) deleteNode(name string) {
	w.Helper()
	w.must(w.c.Nodes.Delete(context.Background(), &metav1.DeleteRequest{Name: name}))
}

// changePod changes a pod through the main resource, its status or /resize.
func (w *world) changePod(name, through string, change func(*corev1.Pod)) {
	w.Helper()
	ctx := context.Background()
	p, err := w.c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(nil, err)
	p = object.Clone(p)
	change(p)
	switch through {
	case "status":
		w.must(w.c.Pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
	case "resize":
		w.must(w.c.Pods.UpdateResize(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
	default:
		w.must(w.c.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Object: p}))
	}
}

func (w *world) resize(name string, requests ...string) {
	w.Helper()
	w.changePod(name, "resize", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities(requests...) })
}

func (w *world) message(name, text string) {
	w.Helper()
	w.changePod(name, "status", func(p *corev1.Pod) { p.Status.Message = text })
}

// before calls f before each call of a method; n counts from 1. It is not called within itself.
func (w *world) before(method string, f func(n int)) {
	n := 0
	w.server.React(func(_ context.Context, m string, _ any) error {
		if m == method {
			n++
			f(n)
		}
		return nil
	})
}

// calls counts the unary calls that bindings are made of.
type calls struct{ binds, podReads, nodeReads, reports int }

func (w *world) calls() calls {
	return calls{
		w.server.Calls(corev1rpc.Pods_Bind_FullMethodName), w.server.Calls(corev1rpc.Pods_Get_FullMethodName),
		w.server.Calls(corev1rpc.Nodes_Get_FullMethodName), w.server.Calls(corev1rpc.Pods_UpdateStatus_FullMethodName),
	}
}

func taint(n *corev1.Node) { n.Spec.Taints = []*corev1.Taint{{Key: "a", Effect: "NoSchedule"}} }

func shrink(n *corev1.Node) { n.Status.Allocatable = quantities("cpu=500m", "memory=8Gi", "pods=10") }

// What changes between the decision and the binding makes it lose, when the decision depends on it: the pod is queued
// again and lands where it fits. What nothing depends on costs one repetition and no decision.
// spec: SCHED-3
func TestChangeBeforeBinding(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(w *world)
		lands  string // "" for nowhere
		lost   float64
		binds  int
	}{
		{"nothing", func(*world) {}, "n1", 0, 1},
		{"the pod grows beyond the node", func(w *world) { w.resize("a", "cpu=3") }, "n2", 1, 2},
		{"the pod shrinks", func(w *world) { w.resize("a", "cpu=1m") }, "n2", 1, 2},
		{"the pod's labels change", func(w *world) {
			w.changePod("a", "", func(p *corev1.Pod) { p.Metadata.Labels = map[string]string{"x": "y"} })
		}, "n2", 1, 2},
		{"the pod is being deleted", func(w *world) {
			w.changePod("a", "", func(p *corev1.Pod) { p.Metadata.Finalizers = []string{"example.com/hold"} })
			w.must(w.c.Pods.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: "a"}))
		}, "", 1, 1},
		{"the pod ends", func(w *world) {
			w.changePod("a", "status", func(p *corev1.Pod) { p.Status.Phase = "Failed" })
		}, "", 1, 1},
		{"the node is tainted", func(w *world) { w.changeNode("n1", taint) }, "n2", 1, 2},
		{"the node is cordoned", func(w *world) {
			w.changeNode("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}, "n2", 1, 2},
		{"the node shrinks", func(w *world) { w.changeNode("n1", shrink) }, "n2", 1, 2},
		{"the node loses a label", func(w *world) {
			w.changeNode("n1", func(n *corev1.Node) { delete(n.Metadata.Labels, "disk") })
		}, "n2", 1, 2},
		{"the node goes", func(w *world) { w.deleteNode("n1") }, "n2", 1, 2},
		{"a smaller node takes the name", func(w *world) {
			w.deleteNode("n1")
			n := newNode("n1")
			shrink(n)
			w.createNode(n)
		}, "n2", 1, 2},
		{"a node like it takes the name", func(w *world) {
			w.deleteNode("n1")
			w.createNode(ssd("n1", "cpu=2", "memory=8Gi", "pods=10"))
		}, "n2", 1, 2},
		{"a pod's status is written", func(w *world) { w.message("a", "x") }, "n1", 0, 2},
		{"a pod is annotated", func(w *world) {
			w.changePod("a", "", func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{"x": "y"} })
		}, "n1", 0, 2},
		{"a heartbeat", func(w *world) { w.heartbeat("n1") }, "n1", 0, 2},
		{"a node is annotated, and a pod's status written", func(w *world) {
			w.changeNode("n1", func(n *corev1.Node) { n.Metadata.Annotations = map[string]string{"x": "y"} })
			w.message("a", "x")
		}, "n1", 0, 2},
		{"the node is tainted and untainted", func(w *world) {
			w.changeNode("n1", taint)
			w.changeNode("n1", func(n *corev1.Node) { n.Spec.Taints = nil })
		}, "n1", 0, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			inWorld(t, scheduler.Config{}, func(w *world) {
				w.before(corev1rpc.Pods_Bind_FullMethodName, func(n int) {
					if n == 1 {
						x.change(w)
						w.createNode(ssd("n2", "cpu=64", "memory=512Gi", "pods=10")) // a new decision would prefer it
					}
				})
				w.addNode(ssd("n1", "cpu=2", "memory=8Gi", "pods=10"))
				p := newPod("a", "cpu=1")
				p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
				w.addPod(p)
				if at := w.nodeOf("a"); x.lost == 0 && at != "n1" {
					t.Errorf("on %q, should be bound at once", at)
				}
				time.Sleep(11 * time.Second)
				if at := w.nodeOf("a"); at != x.lands {
					t.Errorf("on %q, want %q", at, x.lands)
				}
				repeated := 0.0
				if x.lost == 0 {
					repeated = float64(x.binds - 1)
				}
				if l, r := w.conflicts("lost"), w.conflicts("repeated"); l != x.lost || r != repeated {
					t.Errorf("%v lost and %v repeated, want %v and %v", l, r, x.lost, repeated)
				}
				if n := w.calls().binds; n != x.binds {
					t.Errorf("%d bindings, want %d", n, x.binds)
				}
			})
		})
	}
}

func ssd(name string, allocatable ...string) *corev1.Node {
	n := newNode(name, allocatable...)
	n.Metadata.Labels["disk"] = "ssd"
	return n
}

// A node that changes at each attempt holds a binder for a while only; the pod is bound when it has calmed down.
// spec: SCHED-3
func TestRepeatsAreBounded(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.before(corev1rpc.Pods_Bind_FullMethodName, func(n int) {
			if n <= 6 {
				w.heartbeat("n1")
			}
		})
		w.addNode(newNode("n1"))
		w.addPod(newPod("a", "cpu=1"))
		if at := w.nodeOf("a"); at != "" || w.calls().binds != 6 {
			t.Errorf("on %q after %d bindings, want 6 that fail", at, w.calls().binds)
		}
		time.Sleep(2 * time.Second)
		if at := w.nodeOf("a"); at != "n1" || w.calls().binds != 7 || w.conflicts("repeated") != 5 ||
			w.conflicts("lost") != 1 {
			t.Errorf("on %q after %d bindings, %v repeated, %v lost", at, w.calls().binds, w.conflicts("repeated"),
				w.conflicts("lost"))
		}
	})
}

// A plain pod costs one request from creation to binding, however often nodes send heartbeats and pods that wait get
// their status written.
// spec: SCHED-3
func TestOneRequestPerBinding(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		const pods = 120
		for i := range pods / 4 { // these wait, and are told so
			w.addPod(newPod(fmt.Sprint("early", i), "cpu=100m"))
		}
		synctest.Wait()
		reports := w.calls().reports
		if reports != pods/4 {
			t.Errorf("%d reports", reports)
		}
		for i := range 5 {
			w.createNode(newNode(fmt.Sprint("n", i), "cpu=64", "memory=512Gi", "pods=110"))
		}
		time.Sleep(time.Minute)
		testReads := 0
		for i := range pods * 3 / 4 {
			if i%5 == 0 {
				synctest.Wait()
				w.heartbeat(fmt.Sprint("n", i/5%5))
				testReads++
				synctest.Wait()
			}
			w.addPod(newPod(fmt.Sprint("late", i), "cpu=100m"))
		}
		synctest.Wait()
		if got, want := w.calls(), (calls{pods, 0, testReads, reports}); got != want {
			t.Errorf("calls %+v, want %+v", got, want)
		}
		if _, _, waiting := w.usage(); len(waiting) > 0 {
			t.Errorf("%d pods wait", len(waiting))
		}
	})
}

// Reports that were not written yet when a pod finds a node are dropped: they would change it under its binding.
func TestReportsGiveWay(t *testing.T) {
	inWorld(t, scheduler.Config{}, func(w *world) {
		w.server.React(func(_ context.Context, method string, _ any) error {
			switch method {
			case corev1rpc.Pods_UpdateStatus_FullMethodName:
				time.Sleep(5 * time.Second)
			case corev1rpc.Pods_Bind_FullMethodName:
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		for i := range 8 {
			w.addPod(newPod(fmt.Sprint("p", i), "cpu=100m"))
		}
		time.Sleep(2 * time.Second)
		w.createNode(newNode("n1"))
		time.Sleep(time.Minute)
		if got, want := w.calls(), (calls{12, 4, 4, 4}); got != want { // four were being written at the time
			t.Errorf("calls %+v, want %+v", got, want)
		}
		if _, _, waiting := w.usage(); len(waiting) > 0 {
			t.Errorf("%d pods wait", len(waiting))
		}
	})
}
