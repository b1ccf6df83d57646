package nodeagent_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/runtime/fake"
)

// BenchmarkIdle reports what idle agents and idle pods hold: heap and stacks together, the objects of the API and the
// fake runtime and the server's history included. It is not timed.
func BenchmarkIdle(b *testing.B) {
	const nodes, pods = 100, 10
	for range b.N {
		api := apitest.StartWith(b, apitest.Config{Durable: true})
		base := held()
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for i := range nodes {
			cri := inproc.NewServer(nil, nil)
			rt := fake.New(fake.Config{})
			runtimeapi.RegisterRuntimeServiceServer(cri, rt)
			runtimeapi.RegisterImageServiceServer(cri, rt)
			name := fmt.Sprintf("node-%d", i)
			a, err := nodeagent.New(nodeagent.Config{
				NodeName: name, Client: api.Agent(name), NoStreams: true, NodeWatched: true, Simulated: true,
				Machine: hostinfo.Simulated(name, i),
				Runtime: runtimeapi.NewRuntimeServiceClient(cri.Conn()), Images: runtimeapi.NewImageServiceClient(cri.Conn()),
			})
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() { _ = a.Run(ctx) })
			<-a.Ready()
		}
		empty := held()
		c := api.Admin()
		for i := range nodes * pods {
			_, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d", i), Generation: 1},
				Spec: &corev1.PodSpec{
					NodeName: fmt.Sprintf("node-%d", i%nodes), RestartPolicy: "Always",
					TerminationGracePeriodSeconds: proto.Int64(30),
					Containers:                    []*corev1.Container{{Name: "main", Image: "host"}},
				},
				Status: &corev1.PodStatus{Phase: "Pending"},
			}})
			if err != nil {
				b.Fatal(err)
			}
		}
		for {
			l, err := c.Pods.List(ctx, &metav1.ListRequest{})
			if err != nil {
				b.Fatal(err)
			}
			running := 0
			for _, p := range l.GetItems() {
				if p.GetStatus().GetPhase() == "Running" {
					running++
				}
			}
			if running == nodes*pods {
				break
			}
			runtime.Gosched()
			<-time.After(10 * time.Millisecond)
		}
		full := held()
		b.ReportMetric(float64(empty-base)/nodes/1024, "KiB/node")
		b.ReportMetric(float64(full-empty)/nodes/pods/1024, "KiB/pod")
		b.ReportMetric(float64(runtime.NumGoroutine())/nodes, "goroutines/node")
		cancel()
		wg.Wait()
		api.Stop()
	}
}

func held() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
