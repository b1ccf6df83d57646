package scheduler_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/objects"
	"monoplane.dev/scheduler/test/scenario"
)

// histories may be raised when the scheduler has changed: each takes a tenth of a second of real time.
var histories = flag.Int("histories", 12, "how many random histories each of the tests plays that play any")

// played is how many random histories a test plays: a third of them with -short, when it is data races that are looked
// for, which would be in any.
func played() int {
	if testing.Short() {
		return max(1, *histories/3)
	}
	return *histories
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a scheduler on a server in a bubble of virtual time.
type world struct {
	testing.TB
	server *apitest.Server
	// c is the administrator's, the scheduler has its own.
	c *client.Client
	// begun is the revision at which nothing has happened yet.
	begun string
	s     *scheduler.Scheduler
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
		w := newWorld(t)
		defer w.start(cfg(w.server.Scheduler()))()
		synctest.Wait()
		if err := w.s.Ready(); err != nil {
			t.Error(err)
		}
		f(w)
	})
}

// newWorld is a server without a scheduler.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{TB: t, server: apitest.Start(t)}
	w.c = w.server.Admin()
	w.server.Namespaces(t, "ns")
	ns, err := w.c.Namespaces.Get(t.Context(), &metav1.GetRequest{Name: "ns"})
	w.must(nil, err)
	w.begun = ns.GetMetadata().GetResourceVersion()
	return w
}

// start runs a scheduler and returns what stops it.
func (w *world) start(cfg scheduler.Config) (stop func()) {
	w.Helper()
	registry := prometheus.NewRegistry()
	cfg.Client, cfg.Registerer, w.metrics = w.server.Scheduler(), registry, registry
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

func quantities(kv ...string) map[string]*metav1.Quantity { return objects.Quantities(kv...) }

func newNode(name string, allocatable ...string) *corev1.Node {
	return objects.Node(name, allocatable...)
}

func newPod(name string, requests ...string) *corev1.Pod { return objects.Pod(name, requests...) }

// addNode adds a node and waits until the scheduler knows it.
func (w *world) addNode(n *corev1.Node) {
	w.Helper()
	w.createNode(n)
	synctest.Wait()
}

func (w *world) createNode(n *corev1.Node) {
	w.Helper()
	w.must(w.server.Agent(n.Metadata.Name).Nodes.Create(context.Background(), &corev1rpc.CreateNodeRequest{Object: n}))
}

func (w *world) addPod(p *corev1.Pod) *corev1.Pod {
	w.Helper()
	scenario.Classify(w, w.c, p)
	o, err := w.c.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: p})
	w.must(nil, err)
	return o
}

func (w *world) force(name string) {
	w.Helper()
	zero := int64(0)
	w.must(w.c.Pods.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: name,
		GracePeriodSeconds: &zero}))
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
func reason(p *corev1.Pod) string { return objects.Reason(p) }

// agents plays the nodes until stop is called.
func (w *world) agents() (stop func()) {
	w.Helper()
	return scenario.Agents(w, w.server)
}
