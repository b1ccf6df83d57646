package service

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// stickySeconds is how long a client stays with a pod, unless it is said.
const stickySeconds = 10_800

// Default fills in a Service; call it on create, on update and on a status update.
func Default(s *corev1.Service) {
	defaults.Message(&s.Metadata)
	defaults.Message(&s.Spec)
	defaultStatus(s)
	spec := s.Spec
	defaults.Set(&spec.SessionAffinity, "None")
	switch c := spec.SessionAffinityConfig; {
	case spec.SessionAffinity == "None":
		spec.SessionAffinityConfig = nil
	case spec.SessionAffinity == "ClientIP" && (c.GetClientIP() == nil || c.ClientIP.TimeoutSeconds == nil):
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}
		defaults.SetPtr(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, stickySeconds)
	}
	defaults.Set(&spec.Type, ClusterIP)
	for i := range spec.Ports {
		defaults.Message(&spec.Ports[i])
		p := spec.Ports[i]
		defaults.Set(&p.Protocol, "TCP")
		if t := p.TargetPort; t.GetIntVal() == 0 && t.GetStrVal() == "" {
			p.TargetPort = &metav1.IntOrString{IntVal: p.Port}
		}
	}
	if external(spec) {
		defaults.Set(&spec.ExternalTrafficPolicy, "Cluster")
	}
	switch spec.Type {
	case ClusterIP, NodePort, LoadBalancer:
		defaults.SetPtr(&spec.InternalTrafficPolicy, "Cluster")
	}
	if spec.Type == LoadBalancer {
		defaults.SetPtr(&spec.AllocateLoadBalancerNodePorts, true)
	}
}

func defaultStatus(s *corev1.Service) {
	defaults.Message(&s.Status)
	defaults.Message(&s.Status.LoadBalancer)
	for _, at := range s.Status.LoadBalancer.Ingress {
		if at.GetIp() != "" && s.GetSpec().GetType() == LoadBalancer {
			defaults.SetPtr(&at.IpMode, "VIP")
		}
	}
}

// ApplyStatus returns live with the status of asked.
func ApplyStatus(asked, live *corev1.Service) *corev1.Service {
	next := &corev1.Service{Spec: live.Spec, Status: object.Clone(asked.GetStatus())}
	defaultStatus(next)
	return next
}

// DefaultNew is Default plus what creation adds: a fresh status, and the list of addresses when only one is given.
func DefaultNew(s *corev1.Service) {
	s.Status = nil
	Default(s)
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// Apply returns live with the metadata and spec of asked. What was given to it stays where asked leaves it out, and
// goes where the Service has no use for it any more.
func Apply(asked, live *corev1.Service) *corev1.Service {
	next := &corev1.Service{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	Default(next)
	was := specOf(live)
	keepGiven(next.Spec, was)
	pairAddresses(next.Spec, was)
	dropUseless(next.Spec, was)
	next.Status = live.Status
	if next.Spec.Type != LoadBalancer && len(live.GetStatus().GetLoadBalancer().GetIngress()) > 0 {
		next.Status = object.Clone(live.Status)
		next.Status.LoadBalancer = &corev1.LoadBalancerStatus{}
	}
	return next
}
