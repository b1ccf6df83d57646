package podgc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*testing.T
	server   *apitest.Server
	c        *client.Client
	registry *prometheus.Registry
}

func inWorld(t *testing.T, cfg podgc.Config, setup, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), registry: prometheus.NewRegistry()}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		setup(w)
		cfg.Client, cfg.Registerer = w.server.Controller("podgc"), w.registry
		cfg.Shared = controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
		c, err := podgc.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.Ready() == nil {
			t.Error("ready before it ran")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, cfg.Shared, c) }()
		synctest.Wait()
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func (w *world) pod(name, node, phase string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec:     &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
		Status:   &corev1.PodStatus{Phase: phase},
	}
	for _, f := range change {
		f(p)
	}
	status := p.Status
	o, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
	if err != nil {
		w.Fatal(err)
	}
	if status.Phase == o.GetStatus().GetPhase() {
		return o
	}
	status.Conditions = o.GetStatus().GetConditions()
	o = object.Clone(o)
	o.Status = status
	if o, err = w.server.Agent(node).Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: o}); err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) node(name string) {
	w.Helper()
	n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}
	if _, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: n}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) deleteNode(name string) {
	w.Helper()
	if _, err := w.c.Nodes.Delete(w.Context(), &metav1.DeleteRequest{Name: name}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.Helper()
	if _, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name}); err != nil {
		w.Fatal(err)
	}
}

// get returns the pod, nil when it is gone.
func (w *world) get(name string) *corev1.Pod {
	w.Helper()
	synctest.Wait()
	p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) removed(reason string) int {
	return w.counted("pod_gc_collector_force_delete_pods_total", reason)
}

func (w *world) counted(metric, reason string) int {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return int(n)
}

// spec: GC-1, DISR-4
func TestOrphans(t *testing.T) {
	var statuses []string
	inWorld(t, podgc.Config{}, func(w *world) {
		w.node("n1")
		w.node("n2")
		w.pod("a", "n1", "Running")
		w.pod("done", "n1", "Succeeded")
		w.pod("b", "n2", "Running")
	}, func(w *world) {
		w.server.React(func(_ context.Context, method string, req any) error {
			switch method {
			case corev1rpc.Pods_UpdateStatus_FullMethodName:
				statuses = append(statuses, string(req.(*corev1rpc.UpdatePodRequest).GetObject().AppendJSON(nil)))
			case corev1rpc.Pods_Delete_FullMethodName:
				r := req.(*metav1.DeleteRequest)
				if r.GetOptions().GetPreconditions().GetUid() == "" || r.GetOptions().GetGracePeriodSeconds() != 0 {
					w.Errorf("deleted with %v", r)
				}
			}
			return nil
		})
		w.deleteNode("n1")
		time.Sleep(39 * time.Second)
		if w.get("a") == nil {
			w.Error("removed before the quarantine ended")
		}
		time.Sleep(45 * time.Second)
		if w.get("a") != nil || w.get("done") != nil {
			w.Error("the orphans are still there")
		}
		if w.get("b") == nil {
			w.Error("a pod of a living node was removed")
		}
		if n := w.removed("orphaned"); n != 2 {
			w.Errorf("counted %d orphans", n)
		}
		if len(statuses) != 1 {
			w.Fatalf("marked %v", statuses)
		}
		for _, want := range []string{`"name":"a"`, `"phase":"Failed"`, `"DisruptionTarget"`, `"DeletionByPodGC"`, `"uid"`} {
			if !strings.Contains(statuses[0], want) {
				w.Errorf("status %s lacks %s", statuses[0], want)
			}
		}
	})
}

// A node that comes back within the quarantine keeps its pods, and a later absence has a quarantine of its own.
// spec: GC-1
func TestNodeReturns(t *testing.T) {
	inWorld(t, podgc.Config{}, func(w *world) {
		w.node("n1")
		w.pod("a", "n1", "Running")
	}, func(w *world) {
		for range 10 {
			w.deleteNode("n1")
			time.Sleep(30 * time.Second)
			w.node("n1")
			time.Sleep(30 * time.Second)
		}
		if w.get("a") == nil {
			w.Error("removed although the node was never gone for 40 s")
		}
	})
}

// What the cache does not know is not absent: the live read decides.
// spec: GC-1
func TestStaleCacheRemovesNothing(t *testing.T) {
	inWorld(t, podgc.Config{}, func(w *world) {
		w.pod("a", "n1", "Running")
	}, func(w *world) {
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Nodes_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.server.Cut() // from now on the cache learns nothing about nodes
		w.node("n1")
		time.Sleep(10 * time.Minute)
		if w.get("a") == nil {
			w.Error("removed on the word of a stale cache")
		}
		// An answer other than "not found" proves nothing either.
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Nodes_Get_FullMethodName || method == corev1rpc.Nodes_Watch_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.deleteNode("n1")
		time.Sleep(10 * time.Minute)
		if w.get("a") == nil {
			w.Error("removed although the node could not be read")
		}
		w.server.React(nil)
		time.Sleep(2 * time.Minute)
		if w.get("a") != nil {
			w.Error("still there although the node is gone")
		}
	})
}

// A successor of the same name is never touched.
// spec: GC-1, DEL-11
func TestSuccessorIsSafe(t *testing.T) {
	inWorld(t, podgc.Config{}, func(w *world) {
		w.node("n2")
		w.pod("a", "n1", "Running")
	}, func(w *world) {
		swapped := false
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Nodes_Get_FullMethodName && !swapped {
				swapped = true // the pod is replaced between the decision and the removal
				zero := int64(0)
				if _, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "a",
					GracePeriodSeconds: &zero}); err != nil {
					w.Error(err)
				}
				w.pod("a", "n2", "Running")
			}
			return nil
		})
		time.Sleep(5 * time.Minute)
		if p := w.get("a"); p.GetStatus().GetPhase() != "Running" {
			w.Errorf("the successor is %v", p)
		}
		if !swapped {
			w.Error("nothing was tested")
		}
	})
}

// spec: GC-2
func TestUnscheduledTerminating(t *testing.T) {
	held := func(p *corev1.Pod) { p.Metadata.Finalizers = []string{"example.com/hold"} }
	inWorld(t, podgc.Config{}, func(w *world) {
		w.node("n1")
		w.pod("held", "", "Pending", held)
		w.pod("waiting", "", "Pending")
		w.pod("bound", "n1", "Running")
	}, func(w *world) {
		w.delete("held")
		w.delete("bound")
		time.Sleep(time.Minute)
		p := w.get("held")
		if p.GetStatus().GetPhase() != "Failed" || len(p.GetStatus().GetConditions()) != 0 {
			w.Errorf("got %v", p.GetStatus())
		}
		if w.get("waiting").GetStatus().GetPhase() != "Pending" {
			w.Error("a pod that is not terminating was touched")
		}
		if w.get("bound").GetStatus().GetPhase() != "Running" {
			w.Error("a terminating pod of a living node was touched")
		}
		if n := w.removed("unscheduled"); n != 1 {
			w.Errorf("counted %d", n)
		}
		// Finalizers are respected, and the pod is not deleted over and over.
		before := w.server.Calls(corev1rpc.Pods_Delete_FullMethodName)
		time.Sleep(10 * time.Minute)
		if n := w.server.Calls(corev1rpc.Pods_Delete_FullMethodName) - before; n != 0 {
			w.Errorf("deleted %d more times", n)
		}
	})
}

// Pods that are being deleted on a node that is not ready and out of service are failed and removed; others, and those
// of nodes of which only one of the two is true, are not. The server checks that in the very transactions.
//
// spec: GC-3, DISR-4, DEL-8
func TestOutOfService(t *testing.T) {
	state := func(w *world, name, ready string, taint ...*corev1.Taint) {
		t.Helper()
		n, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		n = object.Clone(n)
		n.Spec = &corev1.NodeSpec{Taints: taint}
		if n, err = w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Name: name, Object: n}); err != nil {
			t.Fatal(err)
		}
		n = object.Clone(n)
		n.Status = &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: ready}}}
		if _, err := w.c.Nodes.UpdateStatus(w.Context(), &corev1rpc.UpdateNodeRequest{Name: name, Object: n}); err != nil {
			t.Fatal(err)
		}
	}
	out := &corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute"}
	inWorld(t, podgc.Config{}, func(w *world) {
		for node, x := range map[string]struct {
			ready  string
			taints []*corev1.Taint
		}{"out": {"Unknown", []*corev1.Taint{out}}, "lost": {"Unknown", nil}, "ready": {"True", []*corev1.Taint{out}},
			"back": {"Unknown", []*corev1.Taint{out}}} {
			w.node(node)
			state(w, node, x.ready, x.taints...)
			w.pod("going-"+node, node, "Running")
			w.pod("stays-"+node, node, "Running")
		}
	}, func(w *world) {
		var mu sync.Mutex
		var failed, removed []string
		w.server.React(func(_ context.Context, method string, req any) error {
			switch method {
			case corev1rpc.Pods_UpdateStatus_FullMethodName:
				r := req.(*corev1rpc.UpdatePodRequest)
				if r.GetName() == "going-back" {
					state(w, "back", "Unknown") // the taint goes at the last moment
				}
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, r.GetName()+" "+string(r.GetObject().GetStatus().AppendJSON(nil)))
			case corev1rpc.Pods_Delete_FullMethodName:
				mu.Lock()
				defer mu.Unlock()
				if r := req.(*metav1.DeleteRequest); r.GetOptions() != nil {
					removed = append(removed, r.GetName())
					if r.GetOptions().GetPreconditions().GetUid() == "" || r.GetOptions().GetGracePeriodSeconds() != 0 {
						t.Errorf("deleted with %v", r)
					}
				}
			}
			return nil
		})
		for _, node := range []string{"out", "lost", "ready", "back"} {
			w.delete("going-" + node)
		}
		time.Sleep(10 * time.Minute)
		for name, want := range map[string]bool{
			"going-out": false, "stays-out": true, "going-lost": true, "stays-lost": true, "going-ready": true,
			"stays-ready": true, "going-back": true, "stays-back": true,
		} {
			p := w.get(name)
			if (p != nil) != want || p != nil && p.GetStatus().GetPhase() != "Running" {
				t.Errorf("pod %s is there: %t, want %t: %v", name, p != nil, want, p.GetStatus())
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(removed, []string{"going-out"}) || w.removed("out-of-service") != 1 {
			t.Errorf("removed %v, counted %d", removed, w.removed("out-of-service"))
		}
		if !slices.ContainsFunc(failed, func(s string) bool {
			return strings.HasPrefix(s, "going-out ") && strings.Contains(s, `"phase":"Failed"`) &&
				strings.Contains(s, `"DisruptionTarget"`) && strings.Contains(s, `"DeletionByPodGC"`)
		}) {
			t.Errorf("statuses written: %v", failed)
		}
		if len(failed) < 2 {
			t.Error("the race was not tested")
		}
	})
}

// spec: GC-4
func TestTerminatedThreshold(t *testing.T) {
	inWorld(t, podgc.Config{Threshold: 5}, func(w *world) {
		w.node("n1")
		for i := range 8 {
			w.pod(fmt.Sprint("old", i), "n1", "Succeeded")
			time.Sleep(time.Second)
		}
		w.pod("evicted", "n1", "Failed", func(p *corev1.Pod) { p.Status.Reason = "Evicted" })
		w.pod("running", "n1", "Running")
	}, func(w *world) {
		time.Sleep(time.Minute)
		for name, want := range map[string]bool{
			"evicted": false, "old0": false, "old1": false, "old2": false, "old3": true, "old7": true, "running": true,
		} {
			if got := w.get(name) != nil; got != want {
				w.Errorf("%s: there %v, want %v", name, got, want)
			}
		}
		if n := w.removed("terminated"); n != 4 {
			w.Errorf("counted %d", n)
		}
	})
}

// spec: GC-4
func TestThresholdOff(t *testing.T) {
	inWorld(t, podgc.Config{Threshold: -1}, func(w *world) {
		w.node("n1")
		for i := range 10 {
			w.pod(fmt.Sprint("p", i), "n1", "Failed")
		}
	}, func(w *world) {
		time.Sleep(time.Hour)
		if n := w.removed("terminated"); n != 0 {
			w.Errorf("removed %d", n)
		}
	})
}

// A server that fails is retried, and the failures are counted.
func TestRetries(t *testing.T) {
	inWorld(t, podgc.Config{}, func(w *world) {
		w.pod("a", "n1", "Running")
	}, func(w *world) {
		fails := 3
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_Delete_FullMethodName && fails > 0 {
				fails--
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
		if w.get("a") != nil {
			w.Error("still there")
		}
		if n := w.counted("pod_gc_collector_force_delete_pod_errors_total", "orphaned"); n != 3 {
			w.Errorf("counted %d errors", n)
		}
	})
}
