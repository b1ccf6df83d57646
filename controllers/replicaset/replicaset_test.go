package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/replicaset"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the two controllers on a server with some nodes, in virtual time.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	nodes  *controllertest.Nodes
	// stop ends the controllers.
	stop func()

	mu sync.Mutex
	// creates counts the requests to make pods.
	creates int
	// refuse fails them.
	refuse error
}

func inWorld(t *testing.T, nodes *controllertest.Nodes, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), nodes: nodes}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.server.React(func(_ context.Context, method string, _ any) error {
			if method != corev1rpc.Pods_Create_FullMethodName {
				return nil
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.creates++
			return w.refuse
		})
		ctx, cancel := context.WithCancel(t.Context())
		nodes.Server, nodes.Names = w.server, []string{"n1", "n2", "n3"}
		wait, err := nodes.Start(ctx)
		w.must(err)
		w.stop = w.start()
		f(w)
		w.stop()
		cancel()
		wait()
	})
}

// refusing fails the requests to make pods from now on; nil fails none.
func (w *world) refusing(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

// made returns how many requests to make pods there were.
func (w *world) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.creates
}

// start starts the controllers.
func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	rs, err := replicaset.New(replicaset.Config{Client: w.server.Controller("replicaset"), Shared: shared})
	w.must(err)
	rc, err := replicaset.NewForReplicationControllers(replicaset.Config{
		Client: w.server.Controller("replicationcontroller"), Shared: shared,
	})
	w.must(err)
	if rs.Ready() == nil || rc.Ready() == nil {
		w.Error("ready before they ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, rs, rc) }()
	synctest.Wait()
	w.must(errors.Join(rs.Ready(), rc.Ready()))
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func template(app string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": app, "tier": "front"},
			Annotations: map[string]string{"a": "b"}},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
	}
}

func (w *world) create(name string, replicas, minReady int32) *appsv1.ReplicaSet {
	w.Helper()
	out, err := w.c.ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: &appsv1.ReplicaSetSpec{Replicas: &replicas, MinReadySeconds: minReady, Template: template(name),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}})
	w.must(err)
	return out
}

func (w *world) scale(name string, replicas int32) {
	w.Helper()
	_, err := w.c.ReplicaSets.PatchScale(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: name,
		PatchType: "application/merge-patch+json", Patch: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)})
	w.must(err)
}

// pods returns the pods that count as replicas of an owner, and how many are being deleted.
func (w *world) pods(owner string) (active []*corev1.Pod, terminating int) {
	w.Helper()
	synctest.Wait()
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	for _, p := range l.GetItems() {
		switch {
		case controller.ManagerOf(p).GetName() != owner:
		case availability.Active(p):
			active = append(active, p)
		case availability.Terminating(p):
			terminating++
		}
	}
	return active, terminating
}

// wants checks the status as "replicas fullyLabeled ready available terminating", and the pods.
func (w *world) wants(name, want string) {
	w.Helper()
	synctest.Wait()
	o, err := w.c.ReplicaSets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	s := o.GetStatus()
	got := fmt.Sprint(s.GetReplicas(), s.GetFullyLabeledReplicas(), s.GetReadyReplicas(), s.GetAvailableReplicas(),
		s.GetTerminatingReplicas())
	if got != want {
		w.Errorf("status of %s is %s, want %s", name, got, want)
	}
	if s.GetObservedGeneration() != o.GetMetadata().GetGeneration() {
		w.Errorf("generation %d, observed %d", o.GetMetadata().GetGeneration(), s.GetObservedGeneration())
	}
	active, terminating := w.pods(name)
	if int32(len(active)) != s.GetReplicas() || int32(terminating) != s.GetTerminatingReplicas() {
		w.Errorf("%d pods and %d terminating, but the status is %s", len(active), terminating, got)
	}
}

func seconds(n int) func(*corev1.Pod) time.Duration {
	return func(*corev1.Pod) time.Duration { return time.Duration(n) * time.Second }
}

// spec: WORK-1, WORK-5
func TestKeepsItsReplicas(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(5), StopsIn: seconds(20)}, func(w *world) {
		rs := w.create("web", 3, 10)
		w.wants("web", "3 3 0 0 0")
		time.Sleep(5 * time.Second)
		w.wants("web", "3 3 3 0 0")
		time.Sleep(9 * time.Second)
		w.wants("web", "3 3 3 0 0")
		time.Sleep(time.Second)
		w.wants("web", "3 3 3 3 0")
		if w.made() != 3 {
			w.Errorf("%d requests made 3 pods", w.made())
		}
		active, _ := w.pods("web")
		m, ref := active[0].GetMetadata(), controller.ManagerOf(active[0])
		if !strings.HasPrefix(m.GetName(), "web-") || m.GetLabels()["tier"] != "front" || m.GetAnnotations()["a"] != "b" ||
			ref.GetApiVersion() != "apps/v1" || ref.GetKind() != "ReplicaSet" || ref.GetUid() != rs.Metadata.Uid ||
			!ref.GetBlockOwnerDeletion() {
			w.Errorf("the pod is %v", m)
		}

		// A pod does not count from the moment on at which its deletion begins.
		_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: m.GetName()})
		w.must(err)
		w.wants("web", "3 3 2 2 1")
		time.Sleep(20 * time.Second)
		w.wants("web", "3 3 3 3 0")

		// One that has ended does not count either, and stays.
		active, _ = w.pods("web")
		w.must(w.nodes.End(w.Context(), active[0], "Failed"))
		w.wants("web", "3 3 2 2 0")
		time.Sleep(15 * time.Second)
		w.wants("web", "3 3 3 3 0")

		w.scale("web", 1)
		w.wants("web", "1 1 1 1 2")
		time.Sleep(20 * time.Second)
		w.wants("web", "1 1 1 1 0")
		w.scale("web", 0)
		time.Sleep(20 * time.Second)
		w.wants("web", "0 0 0 0 0")
	})
}

// Those that do the least go first: not ready before ready, cheap ones before dear ones.
func TestChoosesVictims(t *testing.T) {
	broken := map[string]bool{}
	inWorld(t, &controllertest.Nodes{Broken: func(p *corev1.Pod) bool { return broken[p.GetMetadata().GetName()] }},
		func(w *world) {
			w.create("web", 6, 0)
			w.wants("web", "6 6 6 6 0")
			active, _ := w.pods("web")
			dear := map[string]bool{}
			for i, p := range active {
				cost := "-5"
				if i%2 == 0 {
					cost, dear[p.GetMetadata().GetName()] = "100", true
				}
				_, err := w.c.Pods.Patch(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: p.GetMetadata().GetName(),
					PatchType: "application/merge-patch+json", Patch: fmt.Appendf(nil,
						`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":%q}}}`, cost)})
				w.must(err)
			}
			synctest.Wait()
			w.scale("web", 3)
			left, _ := w.pods("web")
			for _, p := range left {
				if !dear[p.GetMetadata().GetName()] {
					w.Errorf("the cheap pod %s was kept", p.GetMetadata().GetName())
				}
			}
		})
}

// Pods that the selector takes and nobody manages are adopted, and count; what it takes no more is released.
func TestAdoptsAndReleases(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		alone := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "alone",
			Labels: map[string]string{"app": "web"}}, Spec: template("web").GetSpec()}
		_, err := w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: alone})
		w.must(err)
		other := proto.CloneOf(alone)
		other.Metadata.Name, other.Metadata.Labels = "other", map[string]string{"app": "db"}
		_, err = w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: other})
		w.must(err)
		synctest.Wait() // who sees the ReplicaSet before the pod makes one that goes again
		w.create("web", 2, 0)
		w.wants("web", "2 1 2 2 0")
		relabel := func(name, app string) {
			_, err = w.c.Pods.Patch(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: name,
				PatchType: "application/merge-patch+json",
				Patch:     fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, app)})
			w.must(err)
		}
		relabel("alone", "elsewhere")
		w.wants("web", "2 2 2 2 0")
		got, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "alone"})
		w.must(err)
		if len(got.GetMetadata().GetOwnerReferences()) != 0 {
			w.Errorf("not released: %v", got.GetMetadata())
		}
		relabel("other", "web")
		time.Sleep(time.Minute)
		if active, _ := w.pods("web"); len(active) != 2 {
			w.Errorf("%d pods after one more was adopted", len(active))
		}
		if w.made() != 4 {
			w.Errorf("%d pods were made, want two by hand and two", w.made())
		}
	})
}

// A template that admission refuses costs one request after the other, ever more seldom, whatever else happens.
func TestRefusedTemplatesMakeNoStorm(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.refusing(apierrors.New(apierrors.Forbidden, "exceeded quota"))
		w.create("web", 100, 0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if w.made() < 15 || w.made() > 40 {
			w.Errorf("%d requests in ten minutes", w.made())
		}
		o, err := w.c.ReplicaSets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
		w.must(err)
		conditions := o.GetStatus().GetConditions()
		if len(conditions) != 1 || conditions[0].Type != "ReplicaFailure" || conditions[0].Status != "True" ||
			conditions[0].Reason != "FailedCreate" || !strings.Contains(conditions[0].Message, "exceeded quota") ||
			strings.Contains(conditions[0].Message, "rpc error") {
			w.Errorf("conditions %v", conditions)
		}
		events, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
		w.must(err)
		if !slices.ContainsFunc(events.GetItems(), func(e *corev1.Event) bool {
			return e.GetReason() == "FailedCreate" && e.GetType() == "Warning" && e.GetInvolvedObject().GetKind() ==
				"ReplicaSet" && e.GetMessage() == "Error creating: exceeded quota"
		}) {
			w.Errorf("events %v", events.GetItems())
		}
		w.refusing(nil)
		time.Sleep(time.Minute)
		w.wants("web", "100 100 100 100 0")
		o, err = w.c.ReplicaSets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
		w.must(err)
		if len(o.GetStatus().GetConditions()) != 0 {
			w.Errorf("it still fails: %v", o.GetStatus().GetConditions())
		}
	})
}

func TestReplicationController(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		_, err := w.c.ReplicationControllers.Create(w.Context(), &corev1rpc.CreateReplicationControllerRequest{
			Object: &corev1.ReplicationController{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "old"},
				Spec:     &corev1.ReplicationControllerSpec{Replicas: proto.Int32(3), Template: template("old")},
			}})
		w.must(err)
		active, _ := w.pods("old")
		o, err := w.c.ReplicationControllers.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "old"})
		w.must(err)
		s := o.GetStatus()
		if len(active) != 3 || s.GetReplicas() != 3 || s.GetReadyReplicas() != 3 || s.GetAvailableReplicas() != 3 ||
			s.GetFullyLabeledReplicas() != 3 || controller.ManagerOf(active[0]).GetApiVersion() != "v1" {
			w.Errorf("%d pods, status %v", len(active), s)
		}
	})
}

// A crowd comes in bursts, none twice, also when the controller is started anew in the midst of it.
func TestCrowd(t *testing.T) {
	inWorld(t, &controllertest.Nodes{StartsIn: seconds(1)}, func(w *world) {
		w.create("web", 700, 0)
		w.wants("web", "700 700 0 0 0")
		if w.made() != 700 {
			w.Errorf("%d requests made 700 pods", w.made())
		}
		w.scale("web", 20)
		w.wants("web", "20 20 0 0 0") // those that are bound nowhere go at once
	})
}

// Whatever happens, what is wanted is there in the end, and nothing was made or deleted beyond.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			nodes := &controllertest.Nodes{StartsIn: seconds(2), StopsIn: seconds(3)}
			inWorld(t, nodes, func(w *world) {
				want, most := int32(3), int32(3)
				w.create("web", want, int32(rng.IntN(3)))
				for range 60 {
					active, _ := w.pods("web")
					if int32(len(active)) > most {
						w.Fatalf("%d pods, and never more than %d were wanted", len(active), most)
					}
					switch rng.IntN(7) {
					case 0:
						want = int32(rng.IntN(9))
						most = max(most, want)
						w.scale("web", want)
					case 1, 2:
						if len(active) > 0 {
							_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns",
								Name: active[rng.IntN(len(active))].GetMetadata().GetName()})
							w.must(err)
						}
					case 3:
						if len(active) > 0 {
							if p := active[rng.IntN(len(active))]; p.GetSpec().GetNodeName() != "" {
								w.must(nodes.End(w.Context(), p, "Failed"))
							}
						}
					case 4:
						w.server.Cut()
					case 6:
						w.stop()
						w.stop = w.start()
					case 5:
						time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
					}
				}
				time.Sleep(5 * time.Minute)
				w.wants("web", fmt.Sprint(want, want, want, want, 0))
			})
		})
	}
}

// An owner that is going adopts nothing, whatever the cache says.
func TestGoingOwnersAdoptNothing(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		rs := object.Clone(w.create("web", 1, 0))
		rs.Metadata.Finalizers = []string{"example.com/hold"}
		_, err := w.c.ReplicaSets.Update(w.Context(), &appsv1rpc.UpdateReplicaSetRequest{Object: &appsv1.ReplicaSet{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web", Finalizers: rs.Metadata.Finalizers}, Spec: rs.Spec}})
		w.must(err)
		_, err = w.c.ReplicaSets.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "web"})
		w.must(err)
		made := w.made()
		_, err = w.c.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "alone", Labels: map[string]string{"app": "web"}},
			Spec:     template("web").GetSpec(),
		}})
		w.must(err)
		active, _ := w.pods("web")
		for _, p := range active {
			_, err = w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: p.GetMetadata().GetName()})
			w.must(err)
		}
		time.Sleep(time.Minute)
		if active, _ = w.pods("web"); len(active) != 0 || w.made() != made+1 {
			w.Errorf("%d pods, %d made", len(active), w.made()-made)
		}
	})
}
