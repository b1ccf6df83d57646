package tainteviction_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/tainteviction"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	stop   func()
}

// inWorld runs f with a node n, and the controller.
func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t)}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.register("n")
		w.control()
		f(w)
		w.stop()
	})
}

func (w *world) control() {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := tainteviction.New(tainteviction.Config{Client: w.server.Controller("taint-eviction"), Shared: shared})
	if err != nil {
		w.Fatal(err)
	}
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	synctest.Wait()
	if err := c.Ready(); err != nil {
		w.Error(err)
	}
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
	}
}

func (w *world) register(name string) {
	w.Helper()
	n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}
	if _, err := w.c.Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: n}); err != nil {
		w.Fatal(err)
	}
}

// taint gives the node n exactly these taints, with NoExecute.
func (w *world) taint(keys ...string) {
	w.Helper()
	list, err := w.c.Nodes.List(w.Context(), &metav1.ListRequest{}) // reading one is what the controller does
	if err != nil {
		w.Fatal(err)
	}
	n := object.Clone(list.GetItems()[0])
	n.Spec = &corev1.NodeSpec{}
	for _, k := range keys {
		n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{Key: k, Effect: "NoExecute"})
	}
	if _, err := w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Name: "n", Object: n}); err != nil {
		w.Fatal(err)
	}
}

// during tolerates a taint for so many seconds, for ever without.
func during(key string, seconds ...int64) *corev1.Toleration {
	l := &corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute"}
	if len(seconds) > 0 {
		l.TolerationSeconds = &seconds[0]
	}
	return l
}

func (w *world) pod(name string, tolerations ...*corev1.Toleration) *corev1.Pod {
	w.Helper()
	p, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PodSpec{
			NodeName: "n", Tolerations: tolerations, Containers: []*corev1.Container{{Name: "main", Image: "host"}},
		},
	}})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

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

// evicted checks which pods are being deleted, and why.
func (w *world) evicted(want ...string) {
	w.Helper()
	synctest.Wait()
	list, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, p := range list.GetItems() {
		if p.GetMetadata().GetDeletionTimestamp() == nil {
			continue
		}
		got = append(got, p.GetMetadata().GetName())
		if grace := p.GetMetadata().GetDeletionGracePeriodSeconds(); grace != 30 {
			w.Errorf("pod %s has %d s to end", p.GetMetadata().GetName(), grace)
		}
		marked := slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
			return c.GetType() == "DisruptionTarget" && c.GetStatus() == "True" &&
				c.GetReason() == "DeletionByTaintManager" && c.GetObservedGeneration() > 0
		})
		if !marked {
			w.Errorf("pod %s does not say why it goes: %v", p.GetMetadata().GetName(), p.GetStatus())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Errorf("evicted are %v, want %v", got, want)
	}
}

// notes returns what events of the controller say of a pod.
func (w *world) notes(name string) (out []string) {
	w.Helper()
	synctest.Wait()
	list, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range list.GetItems() {
		if e.GetInvolvedObject().GetName() == name && e.GetReason() == "TaintManagerEviction" {
			out = append(out, strings.TrimSuffix(e.GetMessage(), " of Pod ns/"+name))
		}
	}
	return out
}

// Pods go when they have tolerated the taints of their node for long enough, and not when those have gone before, or
// the pod has got a toleration.
//
// spec: NODE-3, NODE-5, DISR-4
func TestEviction(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("none")
		w.pod("zero", during("a", 0))
		w.pod("some", during("a", 30), during("b"))
		w.pod("ever", during("a"))
		w.pod("both", during("a"), during("b", 20))
		w.pod("saved", during("a", 30))
		w.taint("a")
		w.evicted("none", "zero")
		w.pod("late", during("a", 10))
		time.Sleep(9 * time.Second)
		w.evicted("none", "zero")
		time.Sleep(2 * time.Second)
		w.evicted("late", "none", "zero")

		saved := object.Clone(w.get("saved"))
		saved.Spec.Tolerations = append([]*corev1.Toleration{during("a")}, saved.Spec.Tolerations...)
		saved.Spec.Tolerations = append(saved.Spec.Tolerations[1:], during(""))
		saved.Spec.Tolerations[0].TolerationSeconds = nil // what may be changed of one that is there
		if _, err := w.c.Pods.Update(w.Context(), &corev1rpc.UpdatePodRequest{Object: saved}); err != nil {
			t.Fatal(err)
		}
		w.taint("a", "b")
		w.evicted("ever", "late", "none", "zero") // which does not tolerate b
		w.taint("b", "a")                         // no news
		time.Sleep(18 * time.Second)
		w.evicted("ever", "late", "none", "zero")
		w.taint("a")
		time.Sleep(time.Minute)
		w.evicted("ever", "late", "none", "some", "zero") // its 30 s went on; b's 20 s ended with b
		if got := w.notes("both"); !slices.Equal(got, []string{"Cancelling deletion"}) {
			t.Errorf("the pod that may stay after all: %v", got)
		}
		if got := w.notes("saved"); !slices.Equal(got, []string{"Cancelling deletion"}) {
			t.Errorf("the pod that got a toleration: %v", got)
		}
		if got := w.notes("some"); len(got) != 1 || !strings.HasPrefix(got[0], "Marking for deletion Pod ns/some") {
			t.Errorf("the pod whose time was over: %v", got)
		}
	})
}

// Nothing is deleted twice, nor by force, nor a successor, nor what tolerates the taint by the time of the deletion;
// nor what is being deleted already. A node that cannot be read says nothing.
//
// spec: DEL-8, DEL-11, NODE-3
func TestOnlyWhatIsMeant(t *testing.T) {
	inWorld(t, func(w *world) {
		var deletions atomic.Int64
		w.pod("going")
		if _, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "going"}); err != nil {
			t.Fatal(err)
		}
		w.pod("replaced")
		w.pod("tolerates")
		w.pod("plain")
		var down atomic.Bool
		down.Store(true)
		w.server.React(func(ctx context.Context, method string, req any) error {
			switch method {
			case corev1rpc.Nodes_Get_FullMethodName:
				if down.Load() {
					return apierrors.New(apierrors.ServiceUnavailable, "down")
				}
			case corev1rpc.Pods_Delete_FullMethodName:
				r := req.(*metav1.DeleteRequest)
				if r.GetOptions().GetPreconditions().GetUid() == "" && r.GracePeriodSeconds == nil {
					t.Errorf("deleted without a uid: %v", r)
				}
				if r.GetOptions() != nil && r.GetOptions().GracePeriodSeconds != nil {
					t.Errorf("deleted with a grace of its own: %v", r)
				}
				if r.GetOptions() == nil {
					return nil // the test's own
				}
				deletions.Add(1)
				switch r.GetName() {
				case "replaced": // at the last moment
					zero := int64(0)
					if _, err := w.c.Pods.Delete(ctx, &metav1.DeleteRequest{
						Namespace: "ns", Name: "replaced", GracePeriodSeconds: &zero,
					}); err != nil {
						t.Error(err)
					}
					w.pod("replaced", during("a"))
				case "tolerates":
					p, err := w.c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: "tolerates"})
					if err != nil {
						t.Error(err)
					}
					p = object.Clone(p)
					p.Spec.Tolerations = append(p.Spec.Tolerations, during("a"))
					if _, err := w.c.Pods.Update(ctx, &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
						t.Error(err)
					}
				}
			}
			return nil
		})
		w.taint("a")
		time.Sleep(10 * time.Minute)
		if n := deletions.Load(); n != 0 {
			t.Errorf("%d deletions while the node cannot be read", n)
		}
		down.Store(false)
		time.Sleep(10 * time.Minute)
		if n := deletions.Load(); n != 3 {
			t.Errorf("%d deletions were tried, want 3", n)
		}
		for name, want := range map[string]bool{"going": true, "plain": true, "replaced": false, "tolerates": false} {
			p := w.get(name)
			if got := p.GetMetadata().GetDeletionTimestamp() != nil; p == nil || got != want {
				t.Errorf("pod %s is deleted: %t, want %t", name, got, want)
			}
		}
		if got := w.notes("going"); got != nil {
			t.Errorf("a pod that somebody had deleted: %v", got)
		}
	})
}

// A node that takes the name of another one has taints of its own, and so has the time that its pods have.
func TestSuccessorOfANode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("p", during("a", 60))
		w.taint("a")
		time.Sleep(50 * time.Second)
		if _, err := w.c.Nodes.Delete(w.Context(), &metav1.DeleteRequest{Name: "n"}); err != nil {
			t.Fatal(err)
		}
		w.register("n")
		time.Sleep(time.Hour)
		w.evicted()
		w.taint("a")
		time.Sleep(50 * time.Second)
		w.evicted()
		time.Sleep(11 * time.Second)
		w.evicted("p")
	})
}

// A controller that begins anew gives pods their whole time again, and finds those that should have gone.
func TestRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pod("p", during("a", 60))
		w.stop()
		w.pod("none")
		w.taint("a")
		time.Sleep(time.Hour)
		w.control()
		w.evicted("none")
		time.Sleep(59 * time.Second)
		w.evicted("none")
		time.Sleep(2 * time.Second)
		w.evicted("none", "p")
	})
}
