package nodeagent_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/hostinfo"
)

// gauge is what a machine has left, as a test says.
type gauge struct {
	mu sync.Mutex
	r  eviction.Readings
}

func (g *gauge) set(s eviction.Signal, available int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.r == nil {
		g.r = eviction.Readings{}
	}
	g.r[s] = eviction.Reading{Available: available, Capacity: 1000}
}

func (g *gauge) read(context.Context) eviction.Readings {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := eviction.Readings{}
	for s, r := range g.r {
		out[s] = r
	}
	return out
}

func requests(pairs ...string) podOption {
	return func(p *corev1.Pod) {
		m := map[string]*metav1.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
		}
		p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Requests: m}
	}
}

func (w *world) nodeCondition(kind string) string {
	for _, c := range w.node().GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c.GetStatus()
		}
	}
	return ""
}

// Under pressure the node says so, evicts one pod at a time, and takes no best-effort pods until the transition period
// is over. spec: QOS-2, DISR-4, DISR-6, LIFE-12
func TestEviction(t *testing.T) {
	inWorld(t, func(w *world) {
		var g gauge
		g.set(eviction.Memory, 500)
		w.cfg.Readings = g.read
		w.cfg.Eviction.Hard = map[string]string{"memory.available": "10%"}
		w.start()
		w.create("asked", requests("memory", "1Gi"))
		w.create("greedy", grace(60), annotated("ignore-term", "true"))
		w.create("second", grace(60))
		time.Sleep(33 * time.Second) // the agent looks every 10 s
		w.phase("greedy", "Running")
		if got := w.nodeCondition("MemoryPressure"); got != "False" {
			t.Errorf("MemoryPressure is %s", got)
		}
		g.set(eviction.Memory, 99)
		time.Sleep(12 * time.Second)
		if got := w.nodeCondition("MemoryPressure"); got != "True" {
			t.Errorf("MemoryPressure is %s", got)
		}
		// Nothing is known of what fake containers use, so that it goes by priority, and then by age.
		evicted := 0
		for _, name := range []string{"asked", "greedy", "second"} {
			p := w.get(name)
			if p.GetStatus().GetPhase() != "Failed" {
				continue
			}
			evicted++
			s := p.GetStatus()
			want := "The node was low on resource: memory. Threshold quantity: 100, available: 99. "
			if c := cond(p, "DisruptionTarget"); s.GetReason() != "Evicted" || s.GetMessage() != want ||
				c.GetStatus() != "True" || c.GetReason() != "TerminationByKubelet" || c.GetMessage() != want {
				t.Errorf("%s: %v", name, s)
			}
		}
		if evicted != 1 {
			t.Errorf("%d pods were evicted", evicted)
		}
		g.set(eviction.Memory, 500)
		time.Sleep(20 * time.Second)
		w.create("late")
		w.create("sized", requests("memory", "1Mi"))
		w.settle()
		w.phase("sized", "Running")
		if s := w.phase("late", "Failed").GetStatus(); s.GetReason() != "Evicted" ||
			s.GetMessage() != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("late: %v", s)
		}
		time.Sleep(5 * time.Minute)
		if got := w.nodeCondition("MemoryPressure"); got != "False" {
			t.Errorf("MemoryPressure is %s after the transition period", got)
		}
		w.create("later")
		w.settle()
		w.phase("later", "Running")
	})
}

// A soft threshold leaves the pod its grace, up to a maximum, and spares critical pods. spec: QOS-2
func TestSoftEviction(t *testing.T) {
	inWorld(t, func(w *world) {
		var g gauge
		w.cfg.Readings = g.read
		w.cfg.Eviction = eviction.Settings{
			Hard: map[string]string{}, Soft: map[string]string{"nodefs.available": "100"},
			SoftGrace: map[string]string{"nodefs.available": "1m"}, MaxGrace: 5 * time.Second,
		}
		w.start()
		w.create("critical", edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }))
		w.create("a", grace(60), annotated("ignore-term", "true"))
		w.settle()
		began := time.Since(w.began)
		g.set(eviction.NodeFS, 1)
		time.Sleep(55 * time.Second)
		w.phase("a", "Running")
		time.Sleep(30 * time.Second)
		w.phase("a", "Failed")
		time.Sleep(5 * time.Minute)
		w.phase("critical", "Running")
		got := w.signals("a")
		if len(got) != 4 || took(t, got[2])-took(t, got[1]) != 5*time.Second || took(t, got[1]) < began+time.Minute {
			t.Errorf("signals: %v", got)
		}
	})
}

// took returns the time of an entry of world.signals.
func took(t *testing.T, entry string) time.Duration {
	d, err := time.ParseDuration(entry[strings.IndexByte(entry, '@')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A critical pod that lacks room gets it. spec: LIFE-12, DISR-4
func TestPreemptionAtAdmission(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.Machine = hostinfo.Simulated(nodeName, 1)
		w.cfg.MaxPods = 2
		w.start()
		w.create("a", requests("cpu", "20"), grace(7), annotated("ignore-term", "true"))
		w.create("b", requests("cpu", "1"))
		w.settle()
		w.create("plain", requests("cpu", "20"))
		w.settle()
		if s := w.phase("plain", "Failed").GetStatus(); s.GetReason() != "OutOfpods" {
			t.Errorf("plain: %v", s)
		}
		w.create("critical", requests("cpu", "20"), edit(func(p *corev1.Pod) {
			p.Spec.PriorityClassName = "system-node-critical"
		}))
		w.settle()
		w.phase("critical", "Pending")
		time.Sleep(20 * time.Second)
		w.phase("critical", "Running")
		w.phase("b", "Running")
		s := w.phase("a", "Failed")
		if c := cond(s, "DisruptionTarget"); s.GetStatus().GetReason() != "Preempting" ||
			s.GetStatus().GetMessage() != "Preempted in order to admit critical pod" || c.GetStatus() != "True" {
			t.Errorf("a: %v", s.GetStatus())
		}
	})
}

// What is reserved, and what thresholds keep free, is not for pods. spec: NODE-1
func TestAllocatable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi"}
		w.cfg.KubeReserved = map[string]string{"cpu": "1500m"}
		w.cfg.MaxPods, w.cfg.PodsPerCore = 500, 10
		w.start()
		s := w.node().GetStatus()
		got := []string{}
		for _, name := range []string{"cpu", "memory", "pods"} {
			got = append(got, s.GetCapacity()[name].GetString_(), s.GetAllocatable()[name].GetString_())
		}
		if want := []string{"32", "30", "256Gi", "255Gi", "320", "320"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// counting is a runtime that says how many processes pods have, by name.
type counting struct {
	runtimeapi.RuntimeServiceClient
	processes map[string]uint64
}

func (c counting) ListContainerStats(
	ctx context.Context, _ *runtimeapi.ListContainerStatsRequest, _ ...grpc.CallOption,
) (*runtimeapi.ListContainerStatsResponse, error) {
	all, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	out := &runtimeapi.ListContainerStatsResponse{}
	for _, one := range all.GetContainers() {
		out.Stats = append(out.Stats, &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
			Id: one.GetId(), Metadata: one.GetMetadata(), Labels: one.GetLabels(),
		}})
	}
	return out, err
}

func (c counting) ListPodSandboxStats(
	ctx context.Context, _ *runtimeapi.ListPodSandboxStatsRequest, _ ...grpc.CallOption,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	all, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	out := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, one := range all.GetItems() {
		n := c.processes[one.GetMetadata().GetName()]
		out.Stats = append(out.Stats, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: one.GetId(), Metadata: one.GetMetadata(), Labels: one.GetLabels()},
			Linux: &runtimeapi.LinuxPodSandboxStats{Process: &runtimeapi.ProcessUsage{
				ProcessCount: &runtimeapi.UInt64Value{Value: n}}},
		})
	}
	return out, err
}

// When process ids run out, the pod with the most of them goes, among those of the least priority. spec: QOS-2
func TestForkBombIsEvicted(t *testing.T) {
	inWorld(t, func(w *world) {
		var g gauge
		g.set(eviction.PIDs, 900)
		w.cfg.Readings = g.read
		w.cfg.Eviction.Hard = map[string]string{"pid.available": "10%"}
		w.cfg.Runtime = counting{w.cfg.Runtime, map[string]uint64{"few": 3, "bomb": 700, "some": 20, "important": 900}}
		w.start()
		for _, name := range []string{"few", "bomb", "some"} {
			w.create(name)
		}
		w.create("important", edit(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }))
		time.Sleep(13 * time.Second)
		w.phase("bomb", "Running")
		g.set(eviction.PIDs, 50)
		time.Sleep(12 * time.Second)
		g.set(eviction.PIDs, 900)
		time.Sleep(time.Minute)
		w.phase("bomb", "Failed")
		for _, name := range []string{"few", "some", "important"} {
			w.phase(name, "Running")
		}
		if got := w.nodeCondition("PIDPressure"); got != "True" {
			t.Errorf("PIDPressure is %s", got)
		}
	})
}
