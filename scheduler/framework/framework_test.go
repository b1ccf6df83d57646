package framework

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func list(kv string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, s := range strings.Fields(kv) {
		k, v, _ := strings.Cut(s, "=")
		m[k] = &metav1.Quantity{String_: v}
	}
	return m
}

func container(requests string) *corev1.Container {
	return &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: list(requests)}}
}

func sidecar(requests string) *corev1.Container {
	c := container(requests)
	always := "Always"
	c.RestartPolicy = &always
	return c
}

// spec: INIT-3
func TestPodRequests(t *testing.T) {
	type cs = []*corev1.Container
	for name, tc := range map[string]struct {
		spec *corev1.PodSpec
		want Resources
	}{
		"nothing": {&corev1.PodSpec{Containers: cs{container("")}}, Resources{}},
		"all kinds": {
			&corev1.PodSpec{
				Containers:     cs{container("cpu=100m memory=1Mi"), container("cpu=1 ephemeral-storage=5 example.com/x=2")},
				InitContainers: cs{sidecar("cpu=1")}, Overhead: list("cpu=10m example.com/x=1"),
			},
			Resources{MilliCPU: 2110, Memory: 1 << 20, EphemeralStorage: 5, Scalar: map[string]int64{"example.com/x": 3}},
		},
		"fractions are rounded up once": {
			&corev1.PodSpec{Containers: cs{container("cpu=100u memory=500m"), container("cpu=100u memory=500m"),
				container("memory=1m")}},
			Resources{MilliCPU: 1, Memory: 2},
		},
		"absurd": {
			&corev1.PodSpec{Containers: cs{container("memory=9223372036854775807"), container("memory=9223372036854775807")}},
			Resources{Memory: math.MaxInt64},
		},
		"absurd in thousandths": {&corev1.PodSpec{Containers: cs{container("cpu=1E")}}, Resources{MilliCPU: math.MaxInt64}},
	} {
		if got := PodRequests(tc.spec); !got.Equal(tc.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// In scores a container that does not say what it needs counts as some, unless the pod as a whole says it.
// spec: SCHED-5
func TestCounted(t *testing.T) {
	type cs = []*corev1.Container
	whole := func(text string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: list(text)}
	}
	for name, tc := range map[string]struct {
		spec        *corev1.PodSpec
		cpu, memory int64
	}{
		"all said":     {&corev1.PodSpec{Containers: cs{container("cpu=0 memory=1")}}, 0, 1},
		"nothing said": {&corev1.PodSpec{Containers: cs{container(""), container("cpu=1")}}, 1100, 400 << 20},
		"sidecars": {&corev1.PodSpec{Containers: cs{container("cpu=1 memory=1")}, InitContainers: cs{sidecar("")}},
			1100, 200<<20 + 1},
		"the pod said it":  {&corev1.PodSpec{Containers: cs{container("")}, Resources: whole("cpu=1 memory=2")}, 1000, 2},
		"the pod said cpu": {&corev1.PodSpec{Containers: cs{container("")}, Resources: whole("cpu=1")}, 1000, 200 << 20},
		"a container memory": {&corev1.PodSpec{Containers: cs{container("memory=1"), container("")},
			Resources: whole("cpu=1")}, 1000, 1},
	} {
		i := NewPodInfo(&corev1.Pod{Spec: tc.spec})
		if i.Counted.MilliCPU != tc.cpu || i.Counted.Memory != tc.memory {
			t.Errorf("%s: %d and %d, want %d and %d", name, i.Counted.MilliCPU, i.Counted.Memory, tc.cpu, tc.memory)
		}
		if want := PodRequests(tc.spec); !i.Requests.Equal(want) {
			t.Errorf("%s: requests %+v, want %+v", name, i.Requests, want)
		}
	}
}

func testPod(uid, requests string, hostPorts ...int32) *PodInfo {
	c := container(requests)
	for _, p := range hostPorts {
		c.Ports = append(c.Ports, &corev1.ContainerPort{HostPort: p})
	}
	return NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: uid, Uid: uid}, Spec: &corev1.PodSpec{Containers: []*corev1.Container{c}},
	})
}

// A NodeInfo never changes: whatever is derived from it, in any order, leaves it as it was.
func TestNodeInfoIsImmutable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	n := NewNodeInfo("n", &corev1.Node{Status: &corev1.NodeStatus{Allocatable: list("cpu=4 pods=10")}})
	show := func(n *NodeInfo) string {
		s := fmt.Sprint(n.Requested, n.Counted, n.Ports, n.Allocatable, n.AllowedPods)
		for _, p := range n.Pods() {
			s += " " + p.UID + fmt.Sprint(p.Requests)
		}
		return s
	}
	versions := []*NodeInfo{n}
	shown := []string{show(n)}
	for range 500 {
		from := versions[rng.IntN(len(versions))]
		uid := fmt.Sprint(rng.IntN(8))
		p := testPod(uid, fmt.Sprintf("cpu=%dm example.com/x=%d", rng.IntN(1000), rng.IntN(3)), rng.Int32N(100)+1)
		var next *NodeInfo
		switch rng.IntN(3) {
		case 0:
			next = from.WithoutPod(uid)
		case 1:
			next = from.WithoutPod(uid).WithPod(p)
		default:
			next = from.WithPodUpdated(p)
		}
		versions, shown = append(versions, next), append(shown, show(next))
		// Sums are always those of the pods.
		var sum Resources
		for _, p := range next.Pods() {
			sum = sum.Add(p.Requests)
		}
		if !sum.Equal(next.Requested) {
			t.Fatalf("sum %+v, pods need %+v", next.Requested, sum)
		}
	}
	for i, v := range versions {
		if show(v) != shown[i] {
			t.Fatalf("version %d changed from %s to %s", i, shown[i], show(v))
		}
	}
}

func TestSnapshotSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	s, model := NewSnapshot(), map[string]*NodeInfo{}
	for range 1000 {
		name := fmt.Sprint("n", rng.IntN(20))
		if rng.IntN(3) == 0 {
			s.Set(name, nil)
			delete(model, name)
		} else {
			n := NewNodeInfo(name, &corev1.Node{})
			s.Set(name, n)
			model[name] = n
		}
		if len(s.Nodes()) != len(model) {
			t.Fatalf("%d nodes, want %d", len(s.Nodes()), len(model))
		}
		for name, n := range model {
			got := s.Node(name)
			if got.Node != n.Node {
				t.Fatalf("wrong %s", name)
			}
			if i, ok := got.Place(); !ok || s.Nodes()[i] != got {
				t.Fatalf("%s is not at its place %d", name, i)
			}
			if _, ok := n.Place(); ok {
				t.Fatalf("%s, which is in no snapshot, has a place", name)
			}
		}
	}
}

// spec: SCHED-7
func TestEnough(t *testing.T) {
	for _, tc := range []struct{ percentage, all, want int }{
		{0, 50, 50}, {0, 100, 100}, {0, 200, 100}, {0, 1000, 420}, {0, 5000, 500}, {0, 10000, 500},
		{100, 1000, 1000}, {10, 5000, 500}, {1, 1000, 100},
	} {
		if got := (searchConfig{tc.percentage}).enough(tc.all); got != tc.want {
			t.Errorf("%d%% of %d: %d, want %d", tc.percentage, tc.all, got, tc.want)
		}
	}
}

// spec: SCHED-6
func TestDiagnosisMessage(t *testing.T) {
	d := NewDiagnosis(4)
	d.Refused(NewStatus(Unresolvable, "T", "node(s) had untolerated taint(s)"))
	cpu := NewStatus(Unschedulable, "F", "Insufficient cpu")
	for range 2 {
		d.Refused(cpu)
	}
	d.Refused(NewStatus(Unschedulable, "F", "Insufficient cpu", "Insufficient memory"))
	d.PostFilter = "preemption: nothing."
	const want = "0/4 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 3 Insufficient " +
		"cpu. preemption: nothing."
	if got := d.Message(); got != want {
		t.Errorf("got %q", got)
	}
	if got := fmt.Sprint(d.Plugins()); got != "[F T]" {
		t.Errorf("refused by %s", got)
	}
	d = NewDiagnosis(2)
	d.PreFilter = NewStatus(Unresolvable, "P", "no such claim")
	if got := d.Message(); got != "0/2 nodes are available: no such claim." {
		t.Errorf("got %q", got)
	}
}
