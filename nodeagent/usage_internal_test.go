package nodeagent

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/usage"
)

// CPU is the difference of two samples; what has started, or started again, between them counts from its start. What
// the runtime does not know is not 0.
func TestUsageReport(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d, cpu time.Duration) usage.Container {
		return usage.Container{At: start.Add(d), CPU: cpu, Memory: 7, Told: &runtimeapi.ContainerStats{
			Cpu: &runtimeapi.CpuUsage{}, Memory: &runtimeapi.MemoryUsage{}}}
	}
	pod := func(of map[string]usage.Container) map[string]*usage.Pod {
		return map[string]*usage.Pod{"uid": {Namespace: "ns", Name: "p", Containers: of}}
	}
	got := usageReport(
		sample{at: start, cpu: time.Minute, pods: pod(map[string]usage.Container{
			"old": at(0, 10*time.Second), "again": at(0, time.Hour), "slow": at(-10*time.Second, 0),
		})},
		sample{at: start.Add(10 * time.Second), cpu: time.Minute + 15*time.Second, pods: pod(map[string]usage.Container{
			"old": at(10*time.Second, 15*time.Second), "again": at(10*time.Second, time.Second),
			"slow": at(10*time.Second, 10*time.Second), "new": at(10*time.Second, 2*time.Second),
			"unknown": {At: start.Add(10 * time.Second), Told: &runtimeapi.ContainerStats{}},
		})},
	)
	container := func(name string, nano int64) *nodev1rpc.ContainerUsage {
		return &nodev1rpc.ContainerUsage{Name: name, Usage: &nodev1rpc.Usage{NanoCores: nano, Memory: 7}}
	}
	want := &nodev1rpc.UsageReport{
		Time: start.Add(10 * time.Second).UnixNano(), Window: int64(10 * time.Second),
		Node: &nodev1rpc.Usage{NanoCores: 1_500_000_000},
		Pods: []*nodev1rpc.PodUsage{{Namespace: "ns", Name: "p", Containers: []*nodev1rpc.ContainerUsage{
			container("again", 100_000_000), container("new", 200_000_000), container("old", 500_000_000),
			container("slow", 500_000_000),
		}}},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// What is told of a machine is what was measured at the time that is told with it: a second answer from the same
// sample is the same.
func TestValuesAndTimesAreOfOneReading(t *testing.T) {
	at := time.Unix(1000, 0)
	used := sample{
		at: at, cpu: time.Minute, total: 10, available: 4,
		memory:     hostinfo.MemoryUse{Used: 5, Anonymous: 3, Faults: 2, MajorFaults: 1, SwapTotal: 9, SwapFree: 7},
		interfaces: []hostinfo.Interface{{Name: "eth0", RxBytes: 1, TxBytes: 2}},
	}
	a := &Agent{cfg: Config{NodeName: "n"}}
	n := a.nodeSummary(used, &nodev1rpc.UsageReport{Node: &nodev1rpc.Usage{}})
	if m := n.Memory; m == nil || !m.Time.Equal(at) || *m.WorkingSet != 6 || *m.Usage != 5 || *m.RSS != 3 {
		t.Errorf("memory %+v", m)
	}
	if s := n.Swap; s == nil || !s.Time.Equal(at) || *s.Usage != 2 {
		t.Errorf("swap %+v", s)
	}
	if i := n.Network; i == nil || !i.Time.Equal(at) || i.Name != "eth0" || *i.RxBytes != 1 || len(i.Interfaces) != 1 {
		t.Errorf("network %+v", i)
	}
}
