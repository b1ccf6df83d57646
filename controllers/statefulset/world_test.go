package statefulset_test

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
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/statefulset"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller of StatefulSets, with those that remove what is left over, on a server with some nodes, in
// virtual time.
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
	sets, err := statefulset.New(statefulset.Config{Client: w.server.Controller("statefulset"), Shared: shared})
	w.must(err)
	pods, err := podgc.New(podgc.Config{Client: w.server.Controller("podgc"), Shared: shared})
	w.must(err)
	owners, err := garbagecollector.New(garbagecollector.Config{Client: w.server.Controller("garbage-collector")})
	w.must(err)
	if sets.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, sets, pods, owners) }()
	synctest.Wait()
	w.must(sets.Ready())
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

// create makes a StatefulSet "web" of image "image:1" with n replicas.
func (w *world) create(n int32, change ...func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	w.Helper()
	spec := &appsv1.StatefulSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, ServiceName: "db",
		Template: &corev1.PodTemplateSpec{
			Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "image:1"}}},
		},
	}
	for _, f := range change {
		f(spec)
	}
	o, err := w.c.StatefulSets.Create(w.Context(), &appsv1rpc.CreateStatefulSetRequest{Object: &appsv1.StatefulSet{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: spec,
	}})
	w.must(err)
	return o
}

// atOnce has members made and deleted all at once.
func atOnce(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = "Parallel" }

// rolling has members of older templates replaced from a number on, and several at a time if most is not 0.
func rolling(partition, most int32) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		steps := &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}
		if most > 0 {
			steps.MaxUnavailable = &metav1.IntOrString{IntVal: most}
		}
		s.UpdateStrategy = &appsv1.StatefulSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: steps}
	}
}

// claims gives each member a claim "data", which goes with what is named.
func claims(withSet, withPod bool) func(*appsv1.StatefulSetSpec) {
	word := map[bool]string{false: "Retain", true: "Delete"}
	return func(s *appsv1.StatefulSetSpec) {
		s.VolumeClaimTemplates = []*corev1.PersistentVolumeClaim{{
			Metadata: &metav1.ObjectMeta{Name: "data", Labels: map[string]string{"disk": "fast"}},
			Spec: &corev1.PersistentVolumeClaimSpec{
				AccessModes: []string{"ReadWriteOnce"}, Resources: &corev1.VolumeResourceRequirements{
					Requests: map[string]*metav1.Quantity{"storage": {String_: "1Gi"}},
				},
			},
		}}
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: word[withSet], WhenScaled: word[withPod],
		}
	}
}

func (w *world) get() *appsv1.StatefulSet {
	w.Helper()
	o, err := w.c.StatefulSets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	w.must(err)
	return o
}

// change changes the StatefulSet, whoever writes it meanwhile.
func (w *world) change(f func(*appsv1.StatefulSetSpec)) {
	w.Helper()
	for {
		o := object.Clone(w.get())
		f(o.Spec)
		_, err := w.c.StatefulSets.Update(w.Context(), &appsv1rpc.UpdateStatefulSetRequest{Object: o})
		if !apierrors.Is(err, apierrors.Conflict) {
			w.must(err)
			return
		}
	}
}

func (w *world) image(image string) {
	w.Helper()
	w.change(func(s *appsv1.StatefulSetSpec) { s.Template.Spec.Containers[0].Image = image })
}

func (w *world) scale(n int32) {
	w.Helper()
	w.change(func(s *appsv1.StatefulSetSpec) { s.Replicas = &n })
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	p, err := w.c.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	return p
}

func (w *world) remove(name string) {
	w.Helper()
	_, err := w.c.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: name})
	w.must(err)
}

// wantsPods compares the pods, as NUMBER:VERSION, with "+" for those that are ready, "-" for those that are going.
func (w *world) wantsPods(want string) {
	w.Helper()
	synctest.Wait()
	l, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, p := range l.GetItems() {
		_, version, _ := strings.Cut(p.GetSpec().GetContainers()[0].GetImage(), ":")
		text := strings.TrimPrefix(p.GetMetadata().GetName(), "web-") + ":" + version
		for _, c := range p.GetStatus().GetConditions() {
			if c.GetType() == "Ready" && c.GetStatus() == "True" {
				text += "+"
			}
		}
		if p.GetMetadata().GetDeletionTimestamp() != nil {
			text += "-"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != want {
		w.Errorf("the pods are %q, want %q", got, want)
	}
}

// wants checks the status: "replicas ready available current updated", and whether the revisions are one.
func (w *world) wants(want string) {
	w.Helper()
	synctest.Wait()
	o := w.get()
	s := o.GetStatus()
	got := fmt.Sprint(s.GetReplicas(), s.GetReadyReplicas(), s.GetAvailableReplicas(), s.GetCurrentReplicas(),
		s.GetUpdatedReplicas())
	if s.GetCurrentRevision() != s.GetUpdateRevision() {
		got += " rolling"
	}
	if got != want {
		w.Errorf("the status is %q, want %q", got, want)
	}
	if s.GetObservedGeneration() != o.GetMetadata().GetGeneration() {
		w.Errorf("generation %d, observed %d", o.GetMetadata().GetGeneration(), s.GetObservedGeneration())
	}
}

// wantsClaims compares the claims, each with the kinds of its owners.
func (w *world) wantsClaims(want string) {
	w.Helper()
	synctest.Wait()
	l, err := w.c.PersistentVolumeClaims.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, c := range l.GetItems() {
		text := c.GetMetadata().GetName()
		for _, r := range c.GetMetadata().GetOwnerReferences() {
			text += "<" + r.GetKind()
		}
		all = append(all, text)
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != want {
		w.Errorf("the claims are %q, want %q", got, want)
	}
}

// told returns the events about the StatefulSet, oldest first.
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
		if e.GetInvolvedObject().GetKind() == "StatefulSet" {
			all = append(all, e.GetReason()+": "+e.GetMessage())
		}
	}
	return all
}

func seconds(n int) func(*corev1.Pod) time.Duration {
	return func(*corev1.Pod) time.Duration { return time.Duration(n) * time.Second }
}
