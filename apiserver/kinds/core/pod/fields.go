package pod

import (
	"strconv"

	corev1 "monoplane.dev/api/core/v1"
)

// fields are the fields by which pods can be selected (OBJ-6).
func fields() map[string]func(*corev1.Pod) string {
	return map[string]func(*corev1.Pod) string{
		"spec.nodeName":            func(o *corev1.Pod) string { return o.GetSpec().GetNodeName() },
		"spec.restartPolicy":       func(o *corev1.Pod) string { return o.GetSpec().GetRestartPolicy() },
		"spec.schedulerName":       func(o *corev1.Pod) string { return o.GetSpec().GetSchedulerName() },
		"spec.serviceAccountName":  func(o *corev1.Pod) string { return o.GetSpec().GetServiceAccountName() },
		"spec.hostNetwork":         func(o *corev1.Pod) string { return strconv.FormatBool(o.GetSpec().GetHostNetwork()) },
		"status.phase":             func(o *corev1.Pod) string { return o.GetStatus().GetPhase() },
		"status.podIP":             podIP,
		"status.nominatedNodeName": func(o *corev1.Pod) string { return o.GetStatus().GetNominatedNodeName() },
	}
}

// podIP is the pod's first address.
func podIP(o *corev1.Pod) string {
	if ips := o.GetStatus().GetPodIPs(); len(ips) > 0 {
		return ips[0].GetIp()
	}
	return o.GetStatus().GetPodIP()
}
