package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// amounts are quantities by resource name. What cannot be read counts as zero; the API refuses such pods.
type amounts map[string]resource.Quantity

func (a amounts) add(m map[string]*metav1.Quantity) {
	for name, q := range m {
		n, err := value.Quantity(q)
		if err != nil {
			continue
		}
		sum := a[name]
		sum.Add(n)
		a[name] = sum
	}
}

func (a amounts) atLeast(b amounts) {
	for name, q := range b {
		if have, ok := a[name]; !ok || have.Cmp(q) < 0 {
			a[name] = q
		}
	}
}

// requests returns what the pod holds on the node: the sum over its containers and sidecars, or what an init
// container needs beside the sidecars that started before it, whichever is more; and the overhead. spec: INIT-3
func requests(pod *corev1.Pod) amounts {
	running, peak := amounts{}, amounts{}
	for _, c := range pod.GetSpec().GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			running.add(c.GetResources().GetRequests())
			continue
		}
		during := amounts{}
		during.atLeast(running)
		during.add(c.GetResources().GetRequests())
		peak.atLeast(during)
	}
	for _, c := range pod.GetSpec().GetContainers() {
		running.add(c.GetResources().GetRequests())
	}
	running.atLeast(peak)
	running.add(pod.GetSpec().GetOverhead())
	return running
}

func resources(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	free := node.GetStatus().GetAllocatable()
	if most, err := value.Quantity(free["pods"]); err == nil && free["pods"] != nil && int64(len(others))+1 > most.Value() {
		return &Refusal{"OutOfpods", fmt.Sprintf(
			"Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(others), most.Value())}
	}
	want := requests(pod)
	if len(want) == 0 {
		return nil
	}
	used := amounts{}
	for _, o := range others {
		for name, q := range requests(o) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		asked := want[name]
		if asked.IsZero() {
			continue
		}
		capacity, err := value.Quantity(free[name])
		if err != nil {
			capacity = resource.Quantity{}
		}
		taken := used[name]
		sum := asked.DeepCopy()
		sum.Add(taken)
		if sum.Cmp(capacity) > 0 {
			return &Refusal{"OutOf" + name, fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s",
				name, asked.String(), taken.String(), capacity.String())}
		}
	}
	return nil
}
