package oracle

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ourqos "monoplane.dev/rules/qos"
)

// The rules that server, scheduler, controllers and agent share (folder rules), over random pods.

// asks are amounts of a few resources, often of those that make a class.
func asks(r *rand.Rand) v1.ResourceList {
	if r.IntN(4) == 0 {
		return nil
	}
	l := v1.ResourceList{}
	for range r.IntN(4) {
		name := pick(r, []string{"cpu", "cpu", "memory", "memory", "hugepages-2Mi", "example.com/gpu", "ephemeral-storage"})
		l[v1.ResourceName(name)] = resource.MustParse(pick(r, []string{"0", "1", "1", "2", "100m", "1Gi", "2Mi", "0.5", "7E",
			"8E"}))
	}
	return l
}

func requirements(r *rand.Rand) v1.ResourceRequirements {
	q := v1.ResourceRequirements{Requests: asks(r), Limits: asks(r)}
	switch r.IntN(3) {
	case 0:
		q.Limits = amounts("cpu", pick(r, []string{"1", "2"}), "memory", "1Gi")
		q.Requests = q.Limits.DeepCopy()
	case 1:
		q.Limits = q.Requests.DeepCopy()
	}
	return q
}

// asking is a pod that asks for resources in all the ways there are.
func asking(r *rand.Rand) *v1.Pod {
	p := &v1.Pod{ObjectMeta: meta("p")}
	container := func() v1.Container { return v1.Container{Name: "c", Resources: requirements(r)} }
	for range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container())
	}
	for range r.IntN(4) {
		c := container()
		if r.IntN(2) == 0 {
			c.RestartPolicy = ptr(pick(r, []v1.ContainerRestartPolicy{"Always", "Always", "Never", "OnFailure"}))
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if r.IntN(3) == 0 {
		p.Spec.Resources = ptr(requirements(r))
	}
	if r.IntN(3) == 0 {
		p.Spec.Overhead = asks(r)
	}
	return p
}

// spec: QOS-1
func TestPodsAreOfTheSameClass(t *testing.T) {
	r := random(t)
	seen := map[string]int{}
	for range *count {
		k := asking(r)
		if r.IntN(10) == 0 {
			k.Status.QOSClass = pick(r, []v1.PodQOSClass{"Guaranteed", "Burstable", "BestEffort"})
		}
		p := ourPod(t, k)
		theirs := ask[[2]string](t, "pod-classes", k)
		want, got := theirs[0], ourqos.Compute(p.Spec)
		told, ours := theirs[1], ourqos.Of(p)
		if got != want || ours != told {
			t.Fatalf("pod %v\nKubernetes %s, given %s\nMonoplane  %s, given %s", k.Spec, want, told, got, ours)
		}
		seen[got]++
	}
	for _, class := range []string{"Guaranteed", "Burstable", "BestEffort"} {
		if *count >= 100 && seen[class] == 0 {
			t.Errorf("no pod of %d is %s", *count, class)
		}
	}
}
