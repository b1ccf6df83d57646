package oracle

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podcgroup"
)

// named gives the containers of a pod names of their own, and the pod what may make it critical.
func named(k *v1.Pod, critical bool) *v1.Pod {
	for i := range k.Spec.Containers {
		k.Spec.Containers[i].Name = "app" + string(rune('0'+i))
	}
	for i := range k.Spec.InitContainers {
		k.Spec.InitContainers[i].Name = "init" + string(rune('0'+i))
	}
	if critical {
		k.Spec.PriorityClassName, k.Spec.Priority = "system-node-critical", ptr(int32(2_000_001_000))
	}
	return k
}

// tooLarge reports whether Kubernetes' sums run over for a pod, or ours stop before, or parts of bytes add up, which
// everybody rounds where he likes.
func tooLarge(k *v1.Pod) bool {
	lists := []v1.ResourceList{k.Spec.Overhead}
	for _, c := range slices.Concat(k.Spec.InitContainers, k.Spec.Containers) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
	}
	if whole := k.Spec.Resources; whole != nil {
		lists = append(lists, whole.Requests, whole.Limits)
	}
	for _, l := range lists {
		for name, q := range l {
			if q.Value() > 1<<40 || name == v1.ResourceCPU && q.Value() > 1<<25 ||
				name == v1.ResourceMemory && q.MilliValue()%1000 != 0 {
				return true
			}
		}
	}
	return false
}

// The kernel kills the containers of pods in the same order. spec: QOS-3
func TestOOMScoresAreTheSame(t *testing.T) {
	r := random(t)
	seen := map[int64]bool{}
	for range *count {
		k := named(asking(r), r.IntN(20) == 0)
		p := ourPod(t, k)
		memory := pick(r, []int64{1 << 20, 4 << 30, 64 << 30})
		f := criconfig.Facts{Node: &criconfig.Node{Memory: memory}}
		ours := slices.Concat(p.GetSpec().GetInitContainers(), p.GetSpec().GetContainers())
		scores := ask[[]int64](t, "oom-scores", k, memory)
		for i, c := range slices.Concat(k.Spec.InitContainers, k.Spec.Containers) {
			want := scores[i]
			got := criconfig.Resources(p, ours[i], f).GetOomScoreAdj()
			if want != got {
				t.Fatalf("pod %+v\ncontainer %s: %d by Kubernetes, %d by Monoplane", k.Spec, c.Name, want, got)
			}
			seen[got] = true
		}
	}
	if len(seen) < 5 {
		t.Errorf("only the scores %v were compared", seen)
	}
}

// afterSidecar reports whether an init container follows a sidecar. Kubernetes takes it to have the sidecar's limits
// when it asks whether all containers have any; here it has to have its own (INIT-8).
func afterSidecar(k *v1.Pod) bool {
	return slices.ContainsFunc(k.Spec.InitContainers[:max(0, len(k.Spec.InitContainers)-1)], func(c v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// podLimits are those of a pod's cgroup, and the class of the pod.
type podLimits struct {
	CPUShares        uint64
	CPUQuota, Memory *int64
	HugePageLimit    map[int64]int64
	Unified          map[string]string
	Class            string
}

// The cgroups of pods are limited alike, and share processors alike. spec: INIT-8, QOS-3
func TestCgroupsOfPodsAreLimitedAlike(t *testing.T) {
	r := random(t)
	limited := 0
	for range *count {
		k := named(asking(r), false)
		if tooLarge(k) || afterSidecar(k) {
			continue
		}
		want := ask[podLimits](t, "pod-limits", k)
		got := criconfig.PodResources(ourPod(t, k), criconfig.Facts{Node: &criconfig.Node{HugePages: []string{"2MB"}}})
		same := int64(want.CPUShares) == got.GetCpuShares() && deref(want.CPUQuota) == got.GetCpuQuota() &&
			deref(want.Memory) == got.GetMemoryLimitInBytes()
		for _, h := range got.GetHugepageLimits() {
			same = same && want.HugePageLimit[2<<20] == int64(h.GetLimit())
		}
		if !same {
			t.Fatalf("pod %+v\nKubernetes shares %d quota %d memory %d huge pages %v\nMonoplane  %v", k.Spec,
				want.CPUShares, deref(want.CPUQuota), deref(want.Memory), want.HugePageLimit, got)
		}
		if got.GetCpuQuota()+got.GetMemoryLimitInBytes() > 0 {
			limited++
		}
	}
	if limited < *count/50 {
		t.Errorf("only %d pods had limits", limited)
	}
}

// On cgroup2 the memory that pods ask for is reserved alike, entirely for guaranteed pods and as far as possible for
// burstable ones, and the files of the pod's group say what Kubernetes' would. Not every machine has cgroup2 with all
// controllers, so that the kernel's files are made up.
//
// spec: QOS-3
func TestGroupsOfVersionTwoSayTheSame(t *testing.T) {
	r := random(t)
	seen := map[string]int{}
	for range min(*count, 500) {
		k := named(asking(r), false)
		// One that sets resources of the pod, but none, is of no class by Kubernetes' code for cgroups.
		if whole := k.Spec.Resources; tooLarge(k) || afterSidecar(k) ||
			whole != nil && len(whole.Requests)+len(whole.Limits) == 0 {
			continue
		}
		want := ask[podLimits](t, "pod-limits-v2", k)
		p := ourPod(t, k)
		got := criconfig.PodResources(p, criconfig.Facts{Node: &criconfig.Node{CgroupV2: true, MemoryQoS: true}})
		if !maps.Equal(want.Unified, got.GetUnified()) {
			t.Fatalf("pod %+v\nKubernetes %v\nMonoplane  %v", k.Spec, want.Unified, got.GetUnified())
		}
		class := want.Class
		root := t.TempDir()
		g := podcgroup.New(root, nil)
		dir := filepath.Join(root, g.Parent("u", class))
		// The weight of cgroup2 for shares is what kubelets make of them; what is not limited is "max".
		files := map[string]string{"cgroup.controllers": "", "memory.max": "max", "cpu.max": "max 100000",
			"cpu.weight": strconv.FormatUint(1+(want.CPUShares-2)*9999/262142, 10)}
		if n := deref(want.Memory); n > 0 {
			files["memory.max"] = strconv.FormatInt(n, 10)
		}
		if n := deref(want.CPUQuota); n > 0 {
			files["cpu.max"] = strconv.FormatInt(n, 10) + " 100000"
		}
		maps.Copy(files, want.Unified)
		for at := dir; strings.HasPrefix(at, root); at = filepath.Dir(at) {
			for name := range files {
				if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, name), nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := podcgroup.New(root, nil).Prepare("u", class, got); err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			said, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(said) != want {
				t.Fatalf("pod %+v\n%s: %q by Kubernetes, %q by Monoplane, %v", k.Spec, name, want, said, err)
			}
			if want != "" && want != "max" {
				seen[name]++
			}
		}
	}
	for _, name := range []string{"memory.min", "memory.low", "memory.max", "cpu.max", "cpu.weight"} {
		if seen[name] == 0 {
			t.Errorf("%s was never compared", name)
		}
	}
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// spec: CTR-10
func TestProcessorsAreSharedAlike(t *testing.T) {
	r := random(t)
	for range *count {
		k := minimal()
		k.Spec.Containers[0].Resources = requirements(r)
		if tooLarge(k) {
			continue
		}
		c := &k.Spec.Containers[0].Resources
		request, ok := c.Requests[v1.ResourceCPU]
		if !ok {
			request = c.Limits[v1.ResourceCPU]
		}
		p := ourPod(t, k)
		got := criconfig.Resources(p, p.GetSpec().GetContainers()[0], criconfig.Facts{})
		theirs := ask[[2]int64](t, "processor-shares", request.MilliValue(), c.Limits.Cpu().MilliValue())
		shares, quota := theirs[0], theirs[1]
		if got.GetCpuShares() != shares || got.GetCpuQuota() != quota {
			t.Fatalf("%+v\nKubernetes %d %d\nMonoplane  %v", c, shares, quota, got)
		}
	}
}
