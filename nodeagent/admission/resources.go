package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// amount returns a quantity of a list. What is not there, or cannot be read (the API refuses it), counts as zero.
func amount(list map[string]*metav1.Quantity, name string) resource.Quantity {
	q, ok := list[name]
	if !ok {
		return resource.Quantity{}
	}
	n, err := value.Quantity(q)
	if err != nil {
		return resource.Quantity{}
	}
	return n
}

// request returns what the pod holds of one resource on the node: the sum over its containers and sidecars, or what
// an init container needs beside the sidecars that started before it, whichever is more; and the overhead. spec: INIT-3
func request(pod *corev1.Pod, name string) resource.Quantity {
	var running, peak resource.Quantity
	for _, c := range pod.GetSpec().GetInitContainers() {
		q := amount(c.GetResources().GetRequests(), name)
		if c.GetRestartPolicy() == "Always" {
			running.Add(q)
			continue
		}
		q.Add(running)
		if q.Cmp(peak) > 0 {
			peak = q
		}
	}
	for _, c := range pod.GetSpec().GetContainers() {
		running.Add(amount(c.GetResources().GetRequests(), name))
	}
	if peak.Cmp(running) > 0 {
		running = peak
	}
	running.Add(amount(pod.GetSpec().GetOverhead(), name))
	return running
}

// names returns the resources that the pod asks for, sorted.
func names(pod *corev1.Pod) []string {
	var all []string
	note := func(list map[string]*metav1.Quantity) {
		for name := range list {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()} {
		for _, c := range list {
			note(c.GetResources().GetRequests())
		}
	}
	note(pod.GetSpec().GetOverhead())
	slices.Sort(all)
	return all
}

func resources(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	free := node.GetStatus().GetAllocatable()
	if most, err := value.Quantity(free["pods"]); err == nil && free["pods"] != nil && int64(len(others))+1 > most.Value() {
		return &Refusal{"OutOfpods", fmt.Sprintf(
			"Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(others), most.Value())}
	}
	for _, name := range names(pod) {
		asked := request(pod, name)
		if asked.IsZero() {
			continue
		}
		var used resource.Quantity
		for _, o := range others {
			used.Add(request(o, name))
		}
		capacity, sum := amount(free, name), asked.DeepCopy()
		sum.Add(used)
		if sum.Cmp(capacity) > 0 {
			return &Refusal{"OutOf" + name, fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s",
				name, asked.String(), used.String(), capacity.String())}
		}
	}
	return nil
}
