package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
)

func registerNode(t testing.TB, as func(string, ...string) *client.Client, name string) {
	t.Helper()
	c := as(authn.NodePrefix+name, authn.NodesGroup)
	n := newNode(name, "cpu=64", "memory=256Gi", "pods=110", "ephemeral-storage=1Ti")
	n.Status.Capacity = n.Status.Allocatable
	if _, err := c.Nodes.Create(t.Context(), &corev1rpc.CreateNodeRequest{Object: n}); err != nil {
		t.Fatal(err)
	}
}

func runScheduler(t testing.TB, cfg scheduler.Config) {
	t.Helper()
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func realPod(name string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Name: "main", Image: "host", Resources: &corev1.ResourceRequirements{Requests: quantities("cpu=10m",
				"memory=16Mi")},
		}}},
	}
}

// await follows the pods until all n are bound, and returns the node of each.
func await(t testing.TB, c *client.Client, n int) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w, err := c.Pods.Watch(ctx, &metav1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]string{}
	for len(bound) < n {
		batch, err := w.Recv()
		if err != nil {
			t.Fatalf("%d of %d bound: %v", len(bound), n, err)
		}
		for _, e := range batch.GetEvents() {
			if node := e.GetObject().GetSpec().GetNodeName(); node != "" {
				bound[e.GetObject().GetMetadata().GetName()] = node
			}
		}
	}
	return bound
}

// The whole way through the real server: create, decide, bind; unschedulable pods say why.
// spec: SCHED-3, SCHED-6
func TestRealServer(t *testing.T) {
	as := apitest.Start(t).As
	registerNode(t, as, "n1")
	registerNode(t, as, "n2")
	runScheduler(t, scheduler.Config{Client: as(authn.SchedulerName), Seed: 1})
	admin := as(authn.AdminName, authn.AdminsGroup)
	for i := range 20 {
		p := realPod(fmt.Sprint("p", i))
		p.Spec.Containers[0].Resources.Requests = quantities("cpu=2")
		if _, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p}); err != nil {
			t.Fatal(err)
		}
	}
	nodes := map[string]int{}
	for _, n := range await(t, admin, 20) {
		nodes[n]++
	}
	if nodes["n1"] != 10 || nodes["n2"] != 10 {
		t.Errorf("spread %v", nodes)
	}
	big := realPod("big")
	big.Spec.Containers[0].Resources.Requests = quantities("cpu=100")
	big, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: big})
	if err != nil {
		t.Fatal(err)
	}
	w, err := admin.Pods.Watch(t.Context(), &metav1.WatchRequest{
		FieldSelector: "metadata.name=big", ResourceVersion: big.GetMetadata().GetResourceVersion(),
	})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := w.Recv()
	if err != nil {
		t.Fatal(err)
	}
	const want = "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 " +
		"Preemption is not helpful for scheduling."
	if got := reason(batch.GetEvents()[0].GetObject()); got != want {
		t.Errorf("condition %q", got)
	}
	events, err := admin.Events.Watch(t.Context(), &metav1.WatchRequest{Namespace: "default",
		FieldSelector: "involvedObject.name=big"})
	if err != nil {
		t.Fatal(err)
	}
	told, err := events.Recv()
	if err != nil {
		t.Fatal(err)
	}
	e := told.GetEvents()[0].GetObject()
	if e.GetReason() != "FailedScheduling" || "Unschedulable: "+e.GetMessage() != want ||
		e.GetReportingComponent() != "default-scheduler" {
		t.Errorf("event %v", e)
	}
}

// What users read about a pod names the profile that the pod chose, whoever wrote it: the scheduler why the pod waits,
// the server that it has been bound.
// spec: SCHED-1, SCHED-6
func TestEventsNameTheProfile(t *testing.T) {
	as := apitest.Start(t).As
	registerNode(t, as, "n1")
	c := as(authn.SchedulerName)
	runScheduler(t, scheduler.Config{Client: c, Profiles: profilesOf(t, twoProfiles)(c)})
	admin := as(authn.AdminName, authn.AdminsGroup)
	want := map[string]string{} // reason and pod, and who reports it
	for _, name := range []string{"default-scheduler", "packing"} {
		for reason, cpu := range map[string]string{"Scheduled": "1", "FailedScheduling": "100"} {
			p := realPod(strings.ToLower(reason) + "." + name)
			p.Spec.SchedulerName = name
			p.Spec.Containers[0].Resources.Requests = quantities("cpu=" + cpu)
			if _, err := admin.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Object: p}); err != nil {
				t.Fatal(err)
			}
			want[reason+" "+p.Metadata.Name] = name
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	events, err := admin.Events.Watch(ctx, &metav1.WatchRequest{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for len(want) > 0 {
		batch, err := events.Recv()
		if err != nil {
			t.Fatalf("%v; no event about %v", err, want)
		}
		for _, e := range batch.GetEvents() {
			e := e.GetObject()
			about := e.GetReason() + " " + e.GetInvolvedObject().GetName()
			if name, ok := want[about]; ok && (e.GetReportingComponent() != name || e.GetReportingInstance() != name) {
				t.Errorf("%s is reported by %s (%s), want %s", about, e.GetReportingComponent(), e.GetReportingInstance(), name)
			}
			delete(want, about)
		}
	}
}

// BenchmarkCreateToBound is the row "create to bound, 1 000 nodes: 3 000 plain pods" of the speed table: everything
// but REST and node agents, fsync on.
func BenchmarkCreateToBound(b *testing.B) {
	const nodes, pods, creators = 1000, 3000, 32
	for b.Loop() {
		b.StopTimer()
		as := apitest.StartWith(b, apitest.Config{Durable: true}).As
		for i := range nodes {
			registerNode(b, as, fmt.Sprint("n", i))
		}
		runScheduler(b, scheduler.Config{Client: as(authn.SchedulerName)})
		admin := as(authn.AdminName, authn.AdminsGroup)
		b.StartTimer()
		began := time.Now()
		var wg sync.WaitGroup
		for c := range creators {
			wg.Go(func() {
				for i := c; i < pods; i += creators {
					_, err := admin.Pods.Create(b.Context(), &corev1rpc.CreatePodRequest{Object: realPod(fmt.Sprint("p", i))})
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		await(b, admin, pods)
		wg.Wait()
		b.ReportMetric(float64(pods)/time.Since(began).Seconds(), "pods/s")
	}
}
