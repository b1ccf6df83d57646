package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec/value"
	rules "monoplane.dev/rules/resources"
)

func resources(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	allocatable := node.GetStatus().GetAllocatable()
	if most, err := value.Quantity(allocatable["pods"]); err == nil && allocatable["pods"] != nil &&
		int64(len(others))+1 > most.Value() {
		return &Refusal{"OutOfpods", fmt.Sprintf(
			"Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(others), most.Value())}
	}
	held := make([]rules.List, len(others))
	for i, o := range others {
		held[i] = rules.Requests(o.GetSpec())
	}
	capacities := rules.ListOf(allocatable)
	for _, asked := range rules.Requests(pod.GetSpec()) {
		if asked.Quantity.IsZero() {
			continue
		}
		var used resource.Quantity
		for _, l := range held {
			if q, ok := l.Get(asked.Name); ok {
				used.Add(q)
			}
		}
		capacity, _ := capacities.Get(asked.Name)
		sum := asked.Quantity.DeepCopy()
		sum.Add(used)
		if sum.Cmp(capacity) > 0 {
			return &Refusal{"OutOf" + asked.Name, fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s",
				asked.Name, asked.Quantity.String(), used.String(), capacity.String())}
		}
	}
	return nil
}
