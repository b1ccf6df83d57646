// Package admission decides whether a node takes a pod that was bound to it: it has the last word, because
// the scheduler may have decided on older facts, and because pods can name a node themselves. It is pure.
//
// Every refusal says which check failed and by how much. It does not check taints or affinity between pods, which only
// matter before a pod is bound.
package admission

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/hostports"
	"monoplane.dev/rules/nodeselector"
)

// Refusal says why a pod is not taken: a CamelCase reason and a sentence, for the pod's status.
type Refusal struct{ Reason, Message string }

// Check returns nil if node takes pod beside others, which are the pods that hold resources there. spec: LIFE-12
func Check(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	for _, check := range []func(*corev1.Pod, *corev1.Node, []*corev1.Pod) *Refusal{
		operatingSystem, affinity, hostPorts, resources,
	} {
		if r := check(pod, node, others); r != nil {
			r.Message = "Pod was rejected: " + r.Message
			return r
		}
	}
	return nil
}

func operatingSystem(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) *Refusal {
	want, have := pod.GetSpec().GetOs().GetName(), node.GetStatus().GetNodeInfo().GetOperatingSystem()
	if want != "" && want != have {
		return &Refusal{"PodOSNotSupported", fmt.Sprintf("the pod needs operating system %s, the node runs %s", want, have)}
	}
	return nil
}

func affinity(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) *Refusal {
	refused := &Refusal{"NodeAffinity",
		"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	if !nodeselector.OfPod(pod.GetSpec()).Matches(node) {
		return refused
	}
	return nil
}

func hostPorts(pod *corev1.Pod, _ *corev1.Node, others []*corev1.Pod) *Refusal {
	wanted := hostports.Of(pod.GetSpec())
	if len(wanted) == 0 {
		return nil
	}
	for _, o := range others {
		if p, ok := hostports.Taken(wanted, hostports.Of(o.GetSpec())); ok {
			return &Refusal{"NodePorts", fmt.Sprintf(
				"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports (%s %d is used by %s/%s)",
				p.Protocol, p.Number, o.GetMetadata().GetNamespace(), o.GetMetadata().GetName())}
		}
	}
	return nil
}
