package kinds

import (
	"slices"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
)

// rolePrefix begins labels that name a role of a node.
const rolePrefix = "node-role.kubernetes.io/"

func nodeTable() columns[*corev1.Node] {
	info := func(get func(*corev1.NodeSystemInfo) string) func(*corev1.Node, moment) any {
		return func(o *corev1.Node, _ moment) any {
			if s := get(o.GetStatus().GetNodeInfo()); s != "" {
				return s
			}
			return "<unknown>"
		}
	}
	address := func(kind string) func(*corev1.Node, moment) any {
		return func(o *corev1.Node, _ moment) any {
			for _, a := range o.GetStatus().GetAddresses() {
				if a.GetType() == kind {
					return a.GetAddress()
				}
			}
			return "<none>"
		}
	}
	return columns[*corev1.Node]{
		{"Status", "string", 0, "Whether the node is ready, and whether it takes pods.", func(o *corev1.Node, _ moment) any { return nodeStatus(o) }},
		{"Roles", "string", 0, "Roles of the node.", func(o *corev1.Node, _ moment) any { return nodeRoles(o) }},
		age[*corev1.Node](),
		{"Version", "string", 0, "Version of the node's agent.", func(o *corev1.Node, _ moment) any {
			return o.GetStatus().GetNodeInfo().GetKubeletVersion()
		}},
		{"Internal-IP", "string", 1, "Address within the cluster.", address("InternalIP")},
		{"External-IP", "string", 1, "Address outside the cluster.", address("ExternalIP")},
		{"OS-Image", "string", 1, "Operating system.", info((*corev1.NodeSystemInfo).GetOsImage)},
		{"Kernel-Version", "string", 1, "Kernel.", info((*corev1.NodeSystemInfo).GetKernelVersion)},
		{"Container-Runtime", "string", 1, "Runtime that runs containers.", info((*corev1.NodeSystemInfo).GetContainerRuntimeVersion)},
	}
}

func nodeStatus(o *corev1.Node) string {
	status := "Unknown"
	for _, c := range o.GetStatus().GetConditions() {
		if c.GetType() != "Ready" {
			continue
		}
		status = "NotReady"
		if c.GetStatus() == "True" {
			status = "Ready"
		}
	}
	if o.GetSpec().GetUnschedulable() {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o *corev1.Node) string {
	var roles []string
	for k, v := range o.GetMetadata().GetLabels() {
		if role, ok := strings.CutPrefix(k, rolePrefix); ok && role != "" {
			roles = append(roles, role)
		} else if k == "kubernetes.io/role" && v != "" {
			roles = append(roles, v)
		}
	}
	slices.Sort(roles)
	return orNone(strings.Join(slices.Compact(roles), ","))
}
