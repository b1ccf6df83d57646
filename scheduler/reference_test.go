package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/framework"
)

// fits is the filters once more, written as plainly as possible.
func fits(p *corev1.Pod, n *corev1.Node, others []*corev1.Pod) bool {
	tolerated := func(t *corev1.Taint) bool {
		for _, l := range p.Spec.Tolerations {
			key := l.Key == t.Key || l.Key == "" && l.Operator == "Exists"
			if key && (l.Effect == "" || l.Effect == t.Effect) && (l.Operator == "Exists" || l.Value == t.Value) {
				return true
			}
		}
		return false
	}
	if n.Spec.Unschedulable && !tolerated(&corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}) {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != "PreferNoSchedule" && !tolerated(t) {
			return false
		}
	}
	for k, v := range p.Spec.NodeSelector {
		if n.Metadata.Labels[k] != v {
			return false
		}
	}
	cpu, port := need(p), p.Spec.Containers[0].Ports
	for _, o := range others {
		cpu += need(o)
		for _, a := range port {
			for _, b := range o.Spec.Containers[0].Ports {
				same := a.HostPort == b.HostPort && a.Protocol == b.Protocol
				if same && (a.HostIP == b.HostIP || a.HostIP == "" || b.HostIP == "") {
					return false
				}
			}
		}
	}
	room := framework.ParseResources(n.Status.Allocatable)
	return (need(p) == 0 || cpu <= room.MilliCPU) && len(others)+1 <= int(room.Scalar["pods"])
}

// need is the cpu of the one container.
func need(p *corev1.Pod) int64 {
	return framework.ParseResources(p.Spec.Containers[0].Resources.Requests).MilliCPU
}

// The filters agree with the plain ones on random pods and nodes, and the diagnosis counts every node once or more.
// spec: SCHED-4
func TestFiltersAgainstReference(t *testing.T) {
	profile, err := scheduler.DefaultProfile(client.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	fitting := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		snapshot := framework.NewSnapshot()
		good := map[string]bool{}
		pod := randomPod(rng, "new")
		for i := range 1 + rng.IntN(4) {
			node := randomNode(rng, fmt.Sprint("n", i))
			info := framework.NewNodeInfo(node.Metadata.Name, node)
			var others []*corev1.Pod
			for j := range rng.IntN(4) {
				o := randomPod(rng, fmt.Sprint(i, "-", j))
				others = append(others, o)
				info = info.WithPod(framework.NewPodInfo(o))
			}
			snapshot.Set(info.Name, info)
			if fits(pod, node, others) {
				good[info.Name] = true
			}
		}
		d := profile.Schedule(&framework.CycleState{}, framework.NewPodInfo(pod), snapshot, framework.NewSearcher(seed+1))
		switch {
		case d.Err != nil:
			t.Fatalf("seed %d: %v", seed, d.Err)
		case d.Node == "" && len(good) > 0, d.Node != "" && !good[d.Node], d.Node != "" && d.Feasible != len(good):
			t.Fatalf("seed %d: picked %q, feasible %d, the reference says %v", seed, d.Node, d.Feasible, good)
		case d.Node != "":
			fitting++
		}
	}
	if fitting < 500 || fitting > 2500 {
		t.Errorf("%d of 3000 fit: the test does not test much", fitting)
	}
}

func randomPod(rng *rand.Rand, name string) *corev1.Pod {
	p := newPod(name, fmt.Sprintf("cpu=%d", rng.IntN(3)))
	p.Metadata.Uid = name
	if rng.IntN(3) == 0 {
		p.Spec.NodeSelector = map[string]string{"disk": []string{"ssd", "hdd"}[rng.IntN(2)]}
	}
	if rng.IntN(2) == 0 {
		port := &corev1.ContainerPort{HostPort: 80 + rng.Int32N(2), Protocol: []string{"TCP", "UDP"}[rng.IntN(2)]}
		port.HostIP = []string{"", "10.0.0.1", "10.0.0.2"}[rng.IntN(3)]
		p.Spec.Containers[0].Ports = []*corev1.ContainerPort{port}
	}
	for range rng.IntN(3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, []*corev1.Toleration{
			{Operator: "Exists"}, {Key: "a", Operator: "Equal", Value: "1"}, {Key: "a", Operator: "Exists", Effect: "NoSchedule"},
			{Key: "b", Operator: "Exists"}, {Key: "b", Value: "2", Effect: "NoExecute"},
			{Key: "node.kubernetes.io/unschedulable", Operator: "Exists"},
		}[rng.IntN(6)])
	}
	return p
}

func randomNode(rng *rand.Rand, name string) *corev1.Node {
	n := newNode(name, fmt.Sprintf("cpu=%d", rng.IntN(8)), fmt.Sprintf("pods=%d", 1+rng.IntN(5)))
	n.Spec.Unschedulable = rng.IntN(6) == 0
	if rng.IntN(2) == 0 {
		n.Metadata.Labels["disk"] = []string{"ssd", "hdd"}[rng.IntN(2)]
	}
	for range rng.IntN(3) {
		n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{
			Key: []string{"a", "b"}[rng.IntN(2)], Value: []string{"1", "2"}[rng.IntN(2)],
			Effect: []string{"NoSchedule", "NoExecute", "PreferNoSchedule"}[rng.IntN(3)],
		})
	}
	return n
}

// BenchmarkDecision is the decision alone, the assumption included: 1 000 nodes, plain pods.
func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			profile, err := scheduler.DefaultProfile(client.New(nil))
			if err != nil {
				b.Fatal(err)
			}
			snapshot, search := framework.NewSnapshot(), framework.NewSearcher(1)
			for i := range nodes {
				name := fmt.Sprint("n", i)
				snapshot.Set(name, framework.NewNodeInfo(name, newNode(name, "cpu=64", "memory=256Gi", "pods=1000000")))
			}
			p := newPod("a", "cpu=1m", "memory=1Mi")
			p.Metadata = &metav1.ObjectMeta{Name: "a", Uid: "a"}
			info := framework.NewPodInfo(p)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d := profile.Schedule(&framework.CycleState{}, info, snapshot, search)
				if d.Node == "" {
					b.Fatal(d.Diagnosis.Message())
				}
				if i++; i%100 != 0 { // so that nodes do not fill up
					snapshot.Set(d.Node, snapshot.Node(d.Node).WithPodUpdated(info))
				}
			}
		})
	}
}
