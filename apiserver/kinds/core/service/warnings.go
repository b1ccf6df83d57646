package service

import (
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// warnings returns what whoever makes a Service, or changes it, is told of what it says in vain, or in an old way.
func warnings(next, _ *corev1.Service) (w validation.Warnings) {
	const oldHints = "service.kubernetes.io/topology-aware-hints"
	spec, s := validation.NewPath("spec"), next.GetSpec()
	if _, ok := next.GetMetadata().GetAnnotations()[oldHints]; ok {
		w.Say("annotation %s is deprecated, please use %s instead", oldHints, "service.kubernetes.io/topology-mode")
	}
	external, headless := s.GetType() == "ExternalName", s.GetType() == "ClusterIP" && s.GetClusterIP() == "None"
	if !external && s.GetClusterIP() != "" && s.GetClusterIP() != "None" {
		for i, ip := range s.GetClusterIPs() {
			w.IP(spec.Child("clusterIPs").Index(i), ip)
		}
	}
	if headless {
		if s.GetLoadBalancerIP() != "" {
			w.Say("spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.GetExternalIPs()) > 0 {
			w.Say("spec.externalIPs is ignored for headless services")
		}
		if s.GetSessionAffinity() != "None" {
			w.Say("spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.GetExternalIPs() {
		w.IP(spec.Child("externalIPs").Index(i), ip)
	}
	if len(s.GetExternalIPs()) > 0 && !headless && !external {
		w.Say("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if s.GetLoadBalancerIP() != "" {
		w.IP(spec.Child("loadBalancerIP"), s.GetLoadBalancerIP())
	}
	for i, cidr := range s.GetLoadBalancerSourceRanges() {
		w.CIDR(spec.Child("loadBalancerSourceRanges").Index(i), cidr)
	}
	if external && len(s.GetExternalIPs()) > 0 {
		w.Say(`spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !external && s.GetExternalName() != "" {
		w.Say(`spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if s.GetTrafficDistribution() == "PreferClose" {
		w.Say(`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return w
}
