package deployment_test

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
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/deployment"
	"monoplane.dev/controllers/deployment/rollout"
	"monoplane.dev/controllers/replicaset"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/availability"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controllers of Deployments and ReplicaSets on a server with some nodes, in virtual time.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	nodes  *controllertest.Nodes
	// stop ends the controllers.
	stop func()

	mu sync.Mutex
	// refused is the method whose requests fail, calls how many have.
	refused string
	calls   int
}

func inWorld(t *testing.T, nodes *controllertest.Nodes, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), nodes: nodes}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.server.React(func(_ context.Context, method string, _ any) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if method != w.refused {
				return nil
			}
			w.calls++
			return apierrors.New(apierrors.Forbidden, "exceeded quota")
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

// refuse fails the requests of a method from now on, and returns how many have failed before.
func (w *world) refuse(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = method
	return w.calls
}

// start starts the controllers.
func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	sets, err := replicaset.New(replicaset.Config{Client: w.server.Controller("replicaset"), Shared: shared})
	w.must(err)
	c, err := deployment.New(deployment.Config{Client: w.server.Controller("deployment"), Shared: shared})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, sets, c) }()
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

// create makes a Deployment of image "host:1" with n replicas.
func (w *world) create(n int32, change ...func(*appsv1.DeploymentSpec)) *appsv1.Deployment {
	w.Helper()
	spec := &appsv1.DeploymentSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: &corev1.PodTemplateSpec{
			// What is empty may be written out or left out, as by clients that send protobuf and JSON.
			Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, CreationTimestamp: &metav1.Time{}},
			Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
				Name: "main", Image: "image:1", Resources: &corev1.ResourceRequirements{},
			}}},
		},
	}
	for _, f := range change {
		f(spec)
	}
	d, err := w.c.Deployments.Create(w.Context(), &appsv1rpc.CreateDeploymentRequest{Object: &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: map[string]string{"team": "a"}},
		Spec:     spec,
	}})
	w.must(err)
	synctest.Wait() // A change before the controller has seen this would be all that it sees.
	return d
}

func steps(surge, unavailable int32) func(*appsv1.DeploymentSpec) {
	return func(s *appsv1.DeploymentSpec) {
		s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: &metav1.IntOrString{IntVal: surge}, MaxUnavailable: &metav1.IntOrString{IntVal: unavailable},
		}}
	}
}

func (w *world) get() *appsv1.Deployment {
	w.Helper()
	d, err := w.c.Deployments.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	w.must(err)
	return d
}

// change changes the Deployment, whoever writes it meanwhile.
func (w *world) change(f func(*appsv1.Deployment)) {
	w.Helper()
	for {
		d := object.Clone(w.get())
		f(d)
		_, err := w.c.Deployments.Update(w.Context(), &appsv1rpc.UpdateDeploymentRequest{Object: d})
		if !apierrors.Is(err, apierrors.Conflict) {
			w.must(err)
			return
		}
	}
}

func (w *world) image(image string) {
	w.Helper()
	w.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

func (w *world) scale(n int32) {
	w.Helper()
	w.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
}

// sets returns the sets by their images: their revision, how many pods they want, have and have available.
func (w *world) sets() string {
	w.Helper()
	synctest.Wait()
	l, err := w.c.ReplicaSets.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, rs := range l.GetItems() {
		if controller.ManagerOf(rs).GetName() != "web" {
			continue
		}
		_, version, _ := strings.Cut(rs.GetSpec().GetTemplate().GetSpec().GetContainers()[0].GetImage(), ":")
		all = append(all, fmt.Sprintf("%s: r%d %d/%d/%d", version, rollout.RevisionOf(rs), rs.GetSpec().GetReplicas(),
			rs.GetStatus().GetReplicas(), rs.GetStatus().GetAvailableReplicas()))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (w *world) wantsSets(want string) {
	w.Helper()
	if got := w.sets(); got != want {
		w.Errorf("the sets are %q, want %q", got, want)
	}
}

// wants checks the status: "replicas updated ready available unavailable", and the conditions' reasons.
func (w *world) wants(want string) {
	w.Helper()
	synctest.Wait()
	d := w.get()
	s := d.GetStatus()
	got := fmt.Sprint(s.GetReplicas(), s.GetUpdatedReplicas(), s.GetReadyReplicas(), s.GetAvailableReplicas(),
		s.GetUnavailableReplicas())
	var conditions []string
	for _, c := range s.GetConditions() {
		conditions = append(conditions, c.GetReason()+"="+c.GetStatus())
	}
	slices.Sort(conditions)
	if got += " " + strings.Join(conditions, " "); got != want {
		w.Errorf("the status is %q, want %q", got, want)
	}
	if s.GetObservedGeneration() != d.GetMetadata().GetGeneration() {
		w.Errorf("generation %d, observed %d", d.GetMetadata().GetGeneration(), s.GetObservedGeneration())
	}
}

// pods returns the pods that count, and how many of them are available.
func (w *world) pods() (all []*corev1.Pod, available int) {
	w.Helper()
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	for _, p := range l.GetItems() {
		if availability.Active(p) {
			all = append(all, p)
			if availability.Ready(p) {
				available++
			}
		}
	}
	return all, available
}

// told returns the messages of the events about the Deployment, oldest first.
func (w *world) told() []string {
	w.Helper()
	time.Sleep(11 * time.Second)
	synctest.Wait()
	l, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	slices.SortFunc(l.Items, func(a, b *corev1.Event) int {
		return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
	})
	var all []string
	for _, e := range l.GetItems() {
		if e.GetInvolvedObject().GetKind() == "Deployment" {
			all = append(all, e.GetReason()+": "+e.GetMessage())
		}
	}
	return all
}

func seconds(n int) func(*corev1.Pod) time.Duration {
	return func(*corev1.Pod) time.Duration { return time.Duration(n) * time.Second }
}
