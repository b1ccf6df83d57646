package naive

import (
	"cmp"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
)

func cordon(_ *Cluster, pod *corev1.Pod, node *corev1.Node) (bool, []string) {
	cordon := &corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}
	if node.Spec.Unschedulable && !tolerates(pod, cordon) {
		return true, []string{"node(s) were unschedulable"}
	}
	return false, nil
}

func nodeName(_ *Cluster, pod *corev1.Pod, node *corev1.Node) (bool, []string) {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Metadata.Name {
		return true, []string{"node(s) didn't match the requested node name"}
	}
	return false, nil
}

func taints(_ *Cluster, pod *corev1.Pod, node *corev1.Node) (bool, []string) {
	if !toleratesHard(pod, node) {
		return true, []string{"node(s) had untolerated taint(s)"}
	}
	return false, nil
}

// toleratesHard says whether the pod tolerates all taints that keep pods away.
func toleratesHard(pod *corev1.Pod, node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if (t.Effect == "NoSchedule" || t.Effect == "NoExecute") && !tolerates(pod, t) {
			return false
		}
	}
	return true
}

func tolerates(pod *corev1.Pod, t *corev1.Taint) bool {
	for _, l := range pod.Spec.Tolerations {
		key := l.Key == t.Key || l.Key == "" && l.Operator == "Exists"
		effect := l.Effect == "" || l.Effect == t.Effect
		value := l.Operator == "Exists" || (l.Operator == "" || l.Operator == "Equal") && l.Value == t.Value
		if key && effect && value {
			return true
		}
	}
	return false
}

// taintScore: the fewer taints to avoid that are not tolerated, the better.
func taintScore(_ *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	scores := make([]int64, len(fit))
	for i, node := range fit {
		for _, t := range node.Spec.Taints {
			if t.Effect == "PreferNoSchedule" && !tolerates(pod, t) {
				scores[i]++
			}
		}
	}
	return normalise(scores, true)
}

func ports(c *Cluster, pod *corev1.Pod, node *corev1.Node) (bool, []string) {
	for _, other := range c.on(node) {
		for _, a := range hostPorts(pod) {
			for _, b := range hostPorts(other) {
				address := a.ip == b.ip || a.ip == "0.0.0.0" || b.ip == "0.0.0.0"
				if a.port == b.port && a.protocol == b.protocol && address {
					return false, []string{"node(s) didn't have free ports for the requested pod ports"}
				}
			}
		}
	}
	return false, nil
}

type port struct {
	ip, protocol string
	port         int32
}

// hostPorts returns the host ports of the containers that run as long as the pod does.
func hostPorts(pod *corev1.Pod) []port {
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.GetRestartPolicy() == "Always" {
			containers = append(containers, c)
		}
	}
	var ports []port
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, port{cmp.Or(p.HostIP, "0.0.0.0"), cmp.Or(p.Protocol, "TCP"), p.HostPort})
			}
		}
	}
	return ports
}
