package daemonset_test

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

	"go.uber.org/goleak"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/daemonset"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/phase"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller on a server with some nodes, in virtual time. The pods are bound to the nodes that their
// affinity names.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	nodes  *controllertest.Nodes
	// stop ends the controller.
	stop func()

	mu sync.Mutex
	// creates counts the requests to make pods.
	creates int
	// refuse fails them.
	refuse error
}

// inWorld runs f in a world with nodes n1, n2 and n3.
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
		nodes.Place = func(p *corev1.Pod) string {
			target, _ := plan.Target(p)
			if _, err := w.c.Nodes.Get(ctx, &metav1.GetRequest{Name: target}); err != nil {
				return ""
			}
			return target
		}
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

// start starts the controller.
func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := daemonset.New(daemonset.Config{Client: w.server.Controller("daemonset"), Shared: shared})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	synctest.Wait()
	w.must(c.Ready())
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

// create makes DaemonSet "web" of image "image:1".
func (w *world) create(change ...func(*appsv1.DaemonSetSpec)) *appsv1.DaemonSet {
	w.Helper()
	spec := &appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: &corev1.PodTemplateSpec{
			Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
		},
	}
	for _, f := range change {
		f(spec)
	}
	d, err := w.c.DaemonSets.Create(w.Context(), &appsv1rpc.CreateDaemonSetRequest{Object: &appsv1.DaemonSet{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: spec,
	}})
	w.must(err)
	return d
}

func steps(surge, unavailable int32) func(*appsv1.DaemonSetSpec) {
	return func(s *appsv1.DaemonSetSpec) {
		s.UpdateStrategy = &appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: &metav1.IntOrString{IntVal: surge}, MaxUnavailable: &metav1.IntOrString{IntVal: unavailable},
		}}
	}
}

func (w *world) get() *appsv1.DaemonSet {
	w.Helper()
	d, err := w.c.DaemonSets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	w.must(err)
	return d
}

// change changes the DaemonSet, whoever writes it meanwhile.
func (w *world) change(f func(*appsv1.DaemonSetSpec)) {
	w.Helper()
	for {
		d := object.Clone(w.get())
		f(d.Spec)
		_, err := w.c.DaemonSets.Update(w.Context(), &appsv1rpc.UpdateDaemonSetRequest{Object: d})
		if !apierrors.Is(err, apierrors.Conflict) {
			w.must(err)
			return
		}
	}
}

func (w *world) image(image string) {
	w.Helper()
	w.change(func(s *appsv1.DaemonSetSpec) { s.Template.Spec.Containers[0].Image = image })
}

// node changes a node, which it makes if it is not there.
func (w *world) node(name string, f func(*corev1.Node)) {
	w.Helper()
	n, err := w.c.Nodes.Get(w.Context(), &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		n = &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.NodeSpec{}}
		f(n)
		_, err := w.server.Agent(name).Nodes.Create(w.Context(), &corev1rpc.CreateNodeRequest{Object: n})
		w.must(err)
		return
	}
	w.must(err)
	n = object.Clone(n)
	f(n)
	_, err = w.c.Nodes.Update(w.Context(), &corev1rpc.UpdateNodeRequest{Object: n})
	w.must(err)
}

// taint gives a node taints in the place of those that it has.
func (w *world) taint(name string, taints ...*corev1.Taint) {
	w.Helper()
	w.node(name, func(n *corev1.Node) { n.Spec.Taints = taints })
}

// pods returns the pods of the DaemonSet by node: "1" is an available one of image:1, "1?" one that is not yet ready,
// "1-" one that is being deleted, "1x" one that has ended besides, "1!" one that has failed.
func (w *world) pods() string {
	w.Helper()
	synctest.Wait()
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	at := map[string][]string{}
	for _, p := range l.GetItems() {
		if controller.ManagerOf(p).GetName() != "web" {
			continue
		}
		_, text, _ := strings.Cut(p.GetSpec().GetContainers()[0].GetImage(), ":")
		switch {
		case p.GetMetadata().GetDeletionTimestamp() != nil && phase.Terminal(p):
			text += "x"
		case p.GetMetadata().GetDeletionTimestamp() != nil:
			text += "-"
		case p.GetStatus().GetPhase() == "Failed":
			text += "!"
		case !availability.Ready(p):
			text += "?"
		}
		node, _ := plan.Target(p)
		at[node] = append(at[node], text)
	}
	var all []string
	for node, list := range at {
		slices.Sort(list)
		all = append(all, node+":"+strings.Join(list, "+"))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *world) wantsPods(want string) {
	w.Helper()
	if got := w.pods(); got != want {
		w.Errorf("the pods are %q, want %q", got, want)
	}
}

// wants checks the status: "desired current misscheduled ready updated available unavailable".
func (w *world) wants(want string) {
	w.Helper()
	synctest.Wait()
	d := w.get()
	s := d.GetStatus()
	got := fmt.Sprint(s.GetDesiredNumberScheduled(), s.GetCurrentNumberScheduled(), s.GetNumberMisscheduled(),
		s.GetNumberReady(), s.GetUpdatedNumberScheduled(), s.GetNumberAvailable(), s.GetNumberUnavailable())
	if got != want {
		w.Errorf("the status is %q, want %q", got, want)
	}
	if s.GetObservedGeneration() != d.GetMetadata().GetGeneration() {
		w.Errorf("generation %d, observed %d", d.GetMetadata().GetGeneration(), s.GetObservedGeneration())
	}
}

// revisions returns the revisions of the DaemonSet: their numbers, in order.
func (w *world) revisions() (all []*appsv1.ControllerRevision) {
	w.Helper()
	synctest.Wait()
	l, err := w.c.ControllerRevisions.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	slices.SortFunc(l.Items, func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return l.Items
}

// pod returns a pod of a node.
func (w *world) pod(node string) *corev1.Pod {
	w.Helper()
	synctest.Wait()
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	for _, p := range l.GetItems() {
		if target, _ := plan.Target(p); target == node && p.GetMetadata().GetDeletionTimestamp() == nil {
			return p
		}
	}
	w.Fatalf("node %s has no pod", node)
	return nil
}

func (w *world) delete(p *corev1.Pod) {
	w.Helper()
	m := p.GetMetadata()
	_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
	w.must(err)
}

func seconds(n int) func(*corev1.Pod) time.Duration {
	return func(*corev1.Pod) time.Duration { return time.Duration(n) * time.Second }
}
