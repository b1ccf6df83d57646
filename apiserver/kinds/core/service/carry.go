package service

import (
	"slices"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// keepGiven puts back what the server gave to a Service and an update leaves out, so that the manifest which made the
// Service can be applied again.
func keepGiven(next, live *corev1.ServiceSpec) {
	if addressed(live) && addressed(next) {
		if next.ClusterIP == "" {
			next.ClusterIP = live.GetClusterIP()
		}
		if len(next.ClusterIPs) == 0 {
			next.ClusterIPs = slices.Clone(live.GetClusterIPs())
		}
	}
	if givenPorts(live) && givenPorts(next) {
		keepPorts(next.Ports, live.GetPorts())
	}
	if healthChecked(live) && healthChecked(next) && next.HealthCheckNodePort == 0 {
		next.HealthCheckNodePort = live.GetHealthCheckNodePort()
	}
}

// keepPorts gives ports without a node port that of the port which had their name, unless another port has it now.
func keepPorts(next, live []*corev1.ServicePort) {
	byName := make(map[string]int32, len(live))
	had := make(map[int32]bool, len(live))
	for _, p := range live {
		byName[p.GetName()] = p.GetNodePort()
		had[p.GetNodePort()] = true
	}
	used := make(map[int32]bool, len(next))
	for _, p := range next {
		if p.NodePort != 0 && had[p.NodePort] {
			used[p.NodePort] = true
		}
	}
	for _, p := range next {
		if was := byName[p.GetName()]; p.NodePort == 0 && !used[was] {
			p.NodePort = was
		}
	}
}

// pairAddresses makes clusterIPs follow clusterIP where a client that knows only the one has changed it.
func pairAddresses(next, live *corev1.ServiceSpec) {
	same := next.ClusterIP == live.GetClusterIP()
	if len(live.GetClusterIPs()) > 0 && len(next.ClusterIPs) == 0 && same {
		next.ClusterIPs = slices.Clone(live.ClusterIPs)
	}
	if same || !slices.Equal(next.ClusterIPs, live.GetClusterIPs()) {
		return
	}
	if next.ClusterIP == "" {
		next.ClusterIPs = nil
		return
	}
	next.ClusterIPs = []string{next.ClusterIP}
}

// dropUseless takes away what the new type of a Service has no use for, unless the update has changed it too: then it
// is for validation to refuse.
func dropUseless(next, live *corev1.ServiceSpec) {
	if addressed(live) && !addressed(next) {
		if next.ClusterIP == live.ClusterIP && slices.Equal(next.ClusterIPs, live.ClusterIPs) {
			next.ClusterIP, next.ClusterIPs = "", nil
		}
		if slices.Equal(next.IpFamilies, live.IpFamilies) {
			next.IpFamilies = nil
		}
		if next.GetIpFamilyPolicy() == live.GetIpFamilyPolicy() {
			next.IpFamilyPolicy = nil
		}
	}
	if nodePorts(live) && !nodePorts(next) && !newNodePorts(next.Ports, live.Ports) {
		for _, p := range next.Ports {
			p.NodePort = 0
		}
	}
	if healthChecked(live) && !healthChecked(next) && next.HealthCheckNodePort == live.HealthCheckNodePort {
		next.HealthCheckNodePort = 0
	}
	if live.GetType() == LoadBalancer && next.Type != LoadBalancer {
		if validation.Same(next.AllocateLoadBalancerNodePorts, live.AllocateLoadBalancerNodePorts) {
			next.AllocateLoadBalancerNodePorts = nil
		}
		if validation.Same(next.LoadBalancerClass, live.LoadBalancerClass) {
			next.LoadBalancerClass = nil
		}
	}
	if external(live) && !external(next) && next.ExternalTrafficPolicy == live.ExternalTrafficPolicy {
		next.ExternalTrafficPolicy = ""
	}
}

// newNodePorts says whether next has node ports that live has not.
func newNodePorts(next, live []*corev1.ServicePort) bool {
	return slices.ContainsFunc(next, func(p *corev1.ServicePort) bool {
		return p.NodePort != 0 &&
			!slices.ContainsFunc(live, func(was *corev1.ServicePort) bool { return was.GetNodePort() == p.NodePort })
	})
}
