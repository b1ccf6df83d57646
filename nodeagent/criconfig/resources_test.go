package criconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// amounts reads "cpu=1 memory=2".
func amounts(text string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for _, pair := range strings.Fields(text) {
		name, amount, _ := strings.Cut(pair, "=")
		m[name] = &metav1.Quantity{String_: amount}
	}
	return m
}

func asks(requests, limits string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
}

// asking returns a pod with a container for each of the resources, and a sidecar before them for those of side.
func asking(whole *corev1.ResourceRequirements, side *corev1.ResourceRequirements,
	each ...*corev1.ResourceRequirements) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "ns", Uid: "u"},
		Spec: &corev1.PodSpec{Resources: whole}}
	if side != nil {
		always := "Always"
		p.Spec.InitContainers = []*corev1.Container{{Name: "side", RestartPolicy: &always, Resources: side}}
	}
	for i, r := range each {
		p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: fmt.Sprint("c", i), Resources: r})
	}
	return p
}

func show(r *runtimeapi.LinuxContainerResources) string {
	var out []string
	for name, n := range map[string]int64{"shares": r.GetCpuShares(), "quota": r.GetCpuQuota(),
		"memory": r.GetMemoryLimitInBytes(), "swap": r.GetMemorySwapLimitInBytes(), "oom": r.GetOomScoreAdj()} {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, n))
		}
	}
	for _, h := range r.GetHugepageLimits() {
		out = append(out, fmt.Sprintf("%s=%d", h.GetPageSize(), h.GetLimit()))
	}
	for k, v := range r.GetUnified() {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// spec: CTR-10, QOS-3
func TestContainerResources(t *testing.T) {
	plain := criconfig.Node{Memory: 1000, AllocatableMemory: 1000}
	huge, v2, v1 := plain, plain, plain
	huge.HugePages = []string{"2MB", "1GB"}
	v2.CgroupV2, v2.Swap, v2.MemoryQoS, v2.PageSize = true, true, true, 10
	v1.Swap, v1.MemoryQoS = true, true
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		node criconfig.Node
		want string
	}{
		{"nothing", asking(nil, nil, asks("", "")), plain, "oom=1000 shares=2"},
		{"guaranteed", asking(nil, nil, asks("cpu=1 memory=100", "cpu=1 memory=100")), plain,
			"memory=100 oom=-997 quota=100000 shares=1024"},
		{"burstable", asking(nil, nil, asks("memory=100", "")), plain, "oom=900 shares=2"},
		{"nearly nothing", asking(nil, nil, asks("cpu=1m", "")), plain, "oom=999 shares=2"},
		{"nearly everything", asking(nil, nil, asks("memory=999", "")), plain, "oom=3 shares=2"},
		{"no memory is known", asking(nil, nil, asks("memory=999", "")), criconfig.Node{}, "oom=999 shares=2"},
		{"limits of the pod", asking(asks("memory=500", "cpu=2 memory=500"), nil, asks("memory=100", "")), plain,
			"memory=500 oom=500 quota=200000 shares=2048"},
		{"its own limits win", asking(asks("", "cpu=2 memory=500"), nil, asks("cpu=100m", "cpu=1 memory=200")), plain,
			"memory=200 oom=999 quota=100000 shares=102"},
		{"huge pages", asking(asks("", "hugepages-2Mi=8Mi hugepages-1Gi=1Gi cpu=1"), nil,
			asks("", "hugepages-2Mi=4Mi hugepages-64Ki=1")), huge,
			"1GB=1073741824 2MB=4194304 oom=999 quota=100000 shares=1024"},
		{"no huge pages", asking(nil, nil, asks("", "")), huge, "1GB=0 2MB=0 oom=1000 shares=2"},
		{"no swap in cgroup v1", asking(nil, nil, asks("", "memory=100")), v1, "memory=100 oom=999 shares=2 swap=100"},
		{"memory in cgroup2", asking(nil, nil, asks("memory=100", "memory=200")), v2,
			"memory.high=190 memory.low=100 memory.swap.max=0 memory=200 oom=900 shares=2"},
		{"memory of the node", asking(nil, nil, asks("memory=100", "")), v2,
			"memory.high=910 memory.low=100 memory.swap.max=0 oom=900 shares=2"},
		{"guaranteed memory", asking(nil, nil, asks("cpu=1 memory=100", "cpu=1 memory=100")), v2,
			"memory.min=100 memory.swap.max=0 memory=100 oom=-997 quota=100000 shares=1024"},
		{"no request", asking(nil, nil, asks("", "")), v2, "memory.swap.max=0 oom=1000 shares=2"},
	} {
		if got := show(criconfig.Resources(c.pod, c.pod.Spec.Containers[0], criconfig.Facts{Node: &c.node})); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A sidecar is no likelier to be killed than what it serves; pods that nodes need are spared. spec: QOS-3
func TestOOMScores(t *testing.T) {
	f := criconfig.Facts{Node: &criconfig.Node{Memory: 1000}}
	p := asking(nil, asks("memory=100", ""), asks("memory=500", ""), asks("memory=300", ""))
	for c, want := range map[*corev1.Container]int64{p.Spec.InitContainers[0]: 700, p.Spec.Containers[0]: 500} {
		if got := criconfig.Resources(p, c, f).GetOomScoreAdj(); got != want {
			t.Errorf("%s: %d, want %d", c.GetName(), got, want)
		}
	}
	p.Spec.PriorityClassName = "system-node-critical"
	for name, edit := range map[string]func(){
		"not critical": func() {},
		"priority":     func() { n := int32(2_000_001_000); p.Spec.Priority = &n },
		"mirror": func() {
			p.Spec.Priority, p.Metadata.Annotations = nil, map[string]string{"kubernetes.io/config.mirror": ""}
		},
		"static": func() { p.Metadata.Annotations = map[string]string{"kubernetes.io/config.source": "file"} },
		"not static": func() {
			p.Metadata.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
		},
	} {
		p.Spec.Priority, p.Metadata.Annotations = nil, nil
		edit()
		want := int64(-997)
		if strings.HasPrefix(name, "not") {
			want = 500
		}
		if got := criconfig.Resources(p, p.Spec.Containers[0], f).GetOomScoreAdj(); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// spec: INIT-8, QOS-3
func TestPodResources(t *testing.T) {
	node := criconfig.Node{Memory: 1000, HugePages: []string{"2MB"}}
	v2 := node
	v2.CgroupV2, v2.MemoryQoS = true, true
	few := v2
	few.PodMaxPIDs = 50
	for _, c := range []struct {
		name     string
		pod      *corev1.Pod
		overhead string
		node     criconfig.Node
		want     string
	}{
		{"nothing", asking(nil, nil, asks("", "")), "memory=1", node, "shares=2"},
		{"every container has limits", asking(nil, nil, asks("", "cpu=1 memory=10"),
			asks("cpu=500m", "cpu=1 memory=20")), "", node, "memory=30 quota=200000 shares=512"},
		{"one has none", asking(nil, nil, asks("", "cpu=1 memory=10"), asks("cpu=500m", "cpu=1")), "", node,
			"quota=200000 shares=512"},
		{"a sidecar has none", asking(nil, asks("", ""), asks("cpu=500m", "cpu=1 memory=10")), "", node, "shares=512"},
		{"the pod has", asking(asks("cpu=2", "cpu=4 memory=40"), nil, asks("", ""), asks("", "memory=10")), "", node,
			"memory=40 quota=400000 shares=2048"},
		{"overhead", asking(asks("cpu=2", "memory=40"), nil, asks("", "")), "cpu=1 memory=5", node,
			"memory=45 shares=3072"},
		{"huge pages", asking(nil, nil, asks("hugepages-2Mi=4Mi cpu=1", "hugepages-2Mi=4Mi")), "", node,
			"2MB=4194304 shares=1024"},
		{"guaranteed memory", asking(nil, nil, asks("cpu=1 memory=10", "cpu=1 memory=10")), "", v2,
			"memory.min=10 memory=10 quota=100000 shares=1024"},
		{"burstable memory", asking(nil, nil, asks("memory=10", "")), "", v2, "memory.low=10 shares=2"},
		{"few processes", asking(nil, nil, asks("memory=10", "")), "", few, "memory.low=10 pids.max=50 shares=2"},
		{"few processes of the least class", asking(nil, nil, asks("", "")), "", few, "pids.max=50 shares=2"},
	} {
		c.pod.Spec.Overhead = amounts(c.overhead)
		if got := show(criconfig.PodResources(c.pod, criconfig.Facts{Node: &c.node})); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestHugePageName(t *testing.T) {
	for size, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 1 << 30: "1GB", 512: "512B"} {
		if got := criconfig.HugePageName(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}
