package criconfig

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/userns"
)

// namespaces says which of the kernel's namespaces the pod shares with the node.
func namespaces(p *corev1.Pod, f Facts) *runtimeapi.NamespaceOption {
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
	o.UsernsOptions = users(p, f)
	return o
}

// users says whose users the containers' are: the node's, or those of a namespace in which the pod's range of the
// node's ids stands for all that there are. spec: USER-1
func users(p *corev1.Pod, f Facts) *runtimeapi.UserNamespace {
	if !OwnUsers(p.GetSpec()) {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	ids := []*runtimeapi.IDMapping{{HostId: f.FirstID, ContainerId: 0, Length: userns.Size}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// OwnUsers reports whether a pod wants users of its own.
func OwnUsers(spec *corev1.PodSpec) bool { return spec.HostUsers != nil && !spec.GetHostUsers() }

// MapMounts has a container with users of its own see what is mounted into it as theirs, whoever's it is on the node.
func MapMounts(c *runtimeapi.ContainerConfig) {
	ids := c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if ids.GetMode() != runtimeapi.NamespaceMode_POD {
		return
	}
	for _, m := range c.GetMounts() {
		m.UidMappings, m.GidMappings = ids.GetUids(), ids.GetGids()
	}
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
