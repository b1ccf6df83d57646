package criconfig

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// namespaces says which of the kernel's namespaces the pod shares with the node.
func namespaces(p *corev1.Pod, _ Facts) *runtimeapi.NamespaceOption {
	s := p.GetSpec()
	// A process namespace is each container's own unless the pod says otherwise.
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if s.GetShareProcessNamespace() {
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	if s.GetHostPID() {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	if s.GetHostNetwork() {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if s.GetHostIPC() {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// maskedPaths returns what a container must not see of the kernel. Runtimes hide only what they are told to hide.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

// readonlyPaths returns what a container must not change: settings of the node's kernel.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
