package scheduler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/fake"
	"monoplane.dev/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a scheduler on a fake server in a bubble of virtual time.
type world struct {
	testing.TB
	server *fake.Server
	c      *client.Client
	s      *scheduler.Scheduler
	// metrics are those of the scheduler that was started last.
	metrics prometheus.Gatherer
}

func inWorld(t *testing.T, cfg scheduler.Config, f func(w *world)) {
	t.Helper()
	inWorldWith(t, func(*client.Client) scheduler.Config { return cfg }, f)
}

// inWorldWith is for plugins that need the client.
func inWorldWith(t *testing.T, cfg func(c *client.Client) scheduler.Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, server: fake.New()}
		w.c = w.server.Client()
		defer w.server.Stop()
		defer w.start(cfg(w.c))()
		synctest.Wait()
		if err := w.s.Ready(); err != nil {
			t.Error(err)
		}
		f(w)
	})
}

// start runs a scheduler and returns what stops it.
func (w *world) start(cfg scheduler.Config) (stop func()) {
	w.Helper()
	registry := prometheus.NewRegistry()
	cfg.Client, cfg.Registerer, w.metrics = w.c, registry, registry
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	s, err := scheduler.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	if s.Ready() == nil {
		w.Error("ready before it ran")
	}
	w.s = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
}

func (w *world) must(_ any, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func quantities(kv ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, s := range kv {
		k, v, _ := strings.Cut(s, "=")
		m[k] = &metav1.Quantity{String_: v}
	}
	return m
}

func newNode(name string, allocatable ...string) *corev1.Node {
	if len(allocatable) == 0 {
		allocatable = []string{"cpu=4", "memory=8Gi", "pods=110"}
	}
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Allocatable: quantities(allocatable...)},
	}
}

func newPod(name string, requests ...string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: &corev1.PodSpec{
			SchedulerName: scheduler.DefaultName,
			Containers:    []*corev1.Container{{Name: "c", Resources: &corev1.ResourceRequirements{Requests: quantities(requests...)}}},
		},
		Status: &corev1.PodStatus{Phase: "Pending"},
	}
}

// addNode adds a node and waits until the scheduler knows it.
func (w *world) addNode(n *corev1.Node) {
	w.Helper()
	w.createNode(n)
	synctest.Wait()
}

func (w *world) createNode(n *corev1.Node) {
	w.Helper()
	w.must(w.c.Nodes.Create(context.Background(), &corev1.CreateNodeRequest{Object: n}))
}

func (w *world) addPod(p *corev1.Pod) *corev1.Pod {
	w.Helper()
	o, err := w.c.Pods.Create(context.Background(), &corev1.CreatePodRequest{Namespace: "ns", Object: p})
	w.must(nil, err)
	return o
}

func (w *world) force(name string) {
	w.Helper()
	zero := int64(0)
	w.must(w.c.Pods.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: name, GracePeriodSeconds: &zero}))
}

// pod returns the pod as it is when everything has settled; nil when it is gone.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	synctest.Wait()
	p, err := w.c.Pods.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	w.must(nil, err)
	return p
}

func (w *world) nodeOf(name string) string {
	w.Helper()
	return w.pod(name).GetSpec().GetNodeName()
}

// conflicts returns how many bindings conflicted with that result.
func (w *world) conflicts(result string) float64 {
	w.Helper()
	families, err := w.metrics.Gather()
	w.must(nil, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "scheduler_binding_conflicts_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// reason returns the condition PodScheduled as text.
func reason(p *corev1.Pod) string {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" && c.GetStatus() == "False" {
			return c.GetReason() + ": " + c.GetMessage()
		}
	}
	return ""
}
