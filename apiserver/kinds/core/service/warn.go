package service

import (
	"context"
	"fmt"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apiserver/warning"

	corev1 "monoplane.dev/api/core/v1"
)

// notCarried is said to who makes a Service that needs an address of its own.
const notCarried = "spec.clusterIP: traffic to cluster IPs, node ports and external addresses is carried only where " +
	"pods have a network of their own, which they have not here (monoplane up --runtime=oci gives them one); headless " +
	"services (clusterIP: None) are complete anyway"

// warn says what is odd about a Service, and what has no effect. Live is nil for a new one.
func (s Services) warn(ctx context.Context, o, live *corev1.Service) {
	if !warning.Collected(ctx) {
		return
	}
	if !s.carried && virtual(specOf(o)) && (live == nil || !virtual(specOf(live))) {
		warning.Add(ctx, notCarried)
	}
	for _, text := range Warnings(o) {
		warning.Add(ctx, text)
	}
}

// virtual says whether a Service is reached at an address that no pod has.
func virtual(s *corev1.ServiceSpec) bool { return addressed(s) && !headless(s) }

// Warnings are what Kubernetes warns of.
func Warnings(o *corev1.Service) []string {
	var out []string
	if _, ok := o.GetMetadata().GetAnnotations()[topologyHints]; ok {
		out = append(out, "annotation "+topologyHints+" is deprecated, please use "+topologyMode+" instead")
	}
	s, p := specOf(o), field.NewPath("spec")
	none := s.GetType() == ClusterIP && s.GetClusterIP() == None
	if s.GetType() != ExternalName && s.GetClusterIP() != None {
		for i, ip := range s.GetClusterIPs() {
			out = append(out, utilvalidation.GetWarningsForIP(p.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if none {
		if s.GetLoadBalancerIP() != "" {
			out = append(out, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.GetExternalIPs()) > 0 {
			out = append(out, "spec.externalIPs is ignored for headless services")
		}
		if s.GetSessionAffinity() != "None" {
			out = append(out, "spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.GetExternalIPs() {
		out = append(out, utilvalidation.GetWarningsForIP(p.Child("externalIPs").Index(i), ip)...)
	}
	if len(s.GetExternalIPs()) > 0 && !none && s.GetType() != ExternalName {
		out = append(out, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if ip := s.GetLoadBalancerIP(); ip != "" {
		out = append(out, utilvalidation.GetWarningsForIP(p.Child("loadBalancerIP"), ip)...)
	}
	for i, cidr := range s.GetLoadBalancerSourceRanges() {
		out = append(out, utilvalidation.GetWarningsForCIDR(p.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if s.GetType() == ExternalName && len(s.GetExternalIPs()) > 0 {
		out = append(out, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", ExternalName))
	}
	if s.GetType() != ExternalName && s.GetExternalName() != "" {
		out = append(out, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", ExternalName))
	}
	if s.GetTrafficDistribution() == "PreferClose" {
		out = append(out, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", "PreferClose", "PreferSameZone"))
	}
	return out
}
