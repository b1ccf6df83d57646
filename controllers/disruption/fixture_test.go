package disruption_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	policyv1rpc "monoplane.dev/api/policy/v1/rpc"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/disruption"
	"monoplane.dev/controllers/test/controllertest"
	rules "monoplane.dev/rules/disruption"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with the controller, in a bubble.
type world struct {
	*testing.T
	server *apitest.Server
	admin  *client.Client
	stop   func()
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: apitest.Start(t)}
	w.admin = w.server.Admin()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	ctl, err := disruption.New(disruption.Config{Client: w.server.Controller("disruption"), Shared: shared})
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, ctl) }()
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	w.settle()
	w.must(ctl.Ready())
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// settle waits until everything has had its effect.
func (w *world) settle() { time.Sleep(time.Second) }

func number(n int32) *metav1.IntOrString { return &metav1.IntOrString{IntVal: n} }

func text(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: s} }

// pod creates a pod with app=web on node n1, which runs and is ready or not.
func (w *world) pod(name string, ready bool, owner *metav1.OwnerReference) *corev1.Pod {
	w.Helper()
	p, err := w.create(name, owner)
	w.must(err)
	return w.ready(p, ready)
}

func (w *world) create(name string, owner *metav1.OwnerReference) (*corev1.Pod, error) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: &corev1.PodSpec{
			NodeName: "n1", Containers: []*corev1.Container{{Name: "main", Image: "host", Command: []string{"x"}}},
		},
	}
	if owner != nil {
		p.Metadata.OwnerReferences = []*metav1.OwnerReference{owner}
	}
	return w.admin.Pods.Create(w.Context(), &corev1rpc.CreatePodRequest{Object: p})
}

func (w *world) ready(p *corev1.Pod, ready bool) *corev1.Pod {
	w.Helper()
	out, err := w.report(p, ready)
	w.must(err)
	return out
}

func (w *world) report(p *corev1.Pod, ready bool) (*corev1.Pod, error) {
	status := "False"
	if ready {
		status = "True"
	}
	m := p.Metadata.Shallow()
	m.ResourceVersion = ""
	return w.admin.Pods.UpdateStatus(w.Context(), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
		Metadata: m,
		Status: &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
			{Type: "Ready", Status: status, LastTransitionTime: value.Time(time.Now())},
		}},
	}})
}

func (w *world) getPod(name string) *corev1.Pod {
	w.Helper()
	p, err := w.admin.Pods.Get(w.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	w.must(err)
	return p
}

// remove forces the deletion of a pod.
func (w *world) remove(name string) {
	w.Helper()
	_, err := w.admin.Pods.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "default", Name: name,
		Options: &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}})
	w.must(err)
}

// budget creates a budget for the pods with app=web.
func (w *world) budget(name string, spec *policyv1.PodDisruptionBudgetSpec) {
	w.Helper()
	if spec.Selector == nil {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	}
	_, err := w.admin.PodDisruptionBudgets.Create(w.Context(), &policyv1rpc.CreatePodDisruptionBudgetRequest{
		Object: &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec,
		},
	})
	w.must(err)
}

func (w *world) getBudget(name string) *policyv1.PodDisruptionBudget {
	w.Helper()
	b, err := w.admin.PodDisruptionBudgets.Get(w.Context(), &metav1.GetRequest{Namespace: "default", Name: name})
	w.must(err)
	return b
}

// edit changes the spec of a budget.
func (w *world) edit(name string, change func(*policyv1.PodDisruptionBudgetSpec)) {
	w.Helper()
	b := proto.CloneOf(w.getBudget(name))
	change(b.Spec)
	_, err := w.admin.PodDisruptionBudgets.Update(w.Context(), &policyv1rpc.UpdatePodDisruptionBudgetRequest{Object: b})
	w.must(err)
}

// counted waits, and says what a budget's status is then: healthy/desired of expected, allowed, reason.
func (w *world) counted(name, want string) {
	w.Helper()
	w.settle()
	b := w.getBudget(name)
	s := b.Status
	got := fmt.Sprintf("%d/%d of %d, %d allowed, %s", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods,
		s.DisruptionsAllowed, rules.Condition(s).GetReason())
	if s.ObservedGeneration != b.Metadata.Generation {
		got += fmt.Sprintf(", of generation %d, not %d", s.ObservedGeneration, b.Metadata.Generation)
	}
	if got != want {
		w.Errorf("budget %s: %s, want %s", name, got, want)
	}
}

// told says how many events with a reason there are about an object.
func (w *world) told(name, reason string) int {
	w.Helper()
	list, err := w.admin.Events.List(w.Context(), &metav1.ListRequest{Namespace: "default"})
	w.must(err)
	n := 0
	for _, e := range list.GetItems() {
		if e.GetInvolvedObject().GetName() == name && e.GetReason() == reason {
			n++
		}
	}
	return n
}

// replicaSet creates a ReplicaSet, of a Deployment or not, and returns what its pods refer to.
func (w *world) replicaSet(name string, replicas int32, of *metav1.OwnerReference) *metav1.OwnerReference {
	w.Helper()
	labels := map[string]string{"app": "web", "set": name}
	set := &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels),
		},
	}
	if of != nil {
		set.Metadata.OwnerReferences = []*metav1.OwnerReference{of}
	}
	out, err := w.admin.ReplicaSets.Create(w.Context(), &appsv1rpc.CreateReplicaSetRequest{Object: set})
	w.must(err)
	return manager("apps/v1", "ReplicaSet", out.Metadata)
}

func (w *world) deployment(name string, replicas int32) *metav1.OwnerReference {
	w.Helper()
	labels := map[string]string{"app": "web"}
	out, err := w.admin.Deployments.Create(w.Context(), &appsv1rpc.CreateDeploymentRequest{Object: &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels),
		},
	}})
	w.must(err)
	return manager("apps/v1", "Deployment", out.Metadata)
}

func template(labels map[string]string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: labels},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host", Command: []string{"x"}}}},
	}
}

func manager(version, kind string, m *metav1.ObjectMeta) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		ApiVersion: version, Kind: kind, Name: m.Name, Uid: m.Uid, Controller: proto.Bool(true),
	}
}

// evict asks for an eviction, and returns what the server says about it: nothing when it is permitted.
func (w *world) evict(name string) string {
	_, err := w.admin.Pods.Evict(w.Context(), &corev1rpc.EvictPodRequest{Namespace: "default", Name: name,
		Object: &policyv1.Eviction{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}}})
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}
