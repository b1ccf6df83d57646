package podspec

import (
	"monoplane.dev/apiserver/defaults"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	gracePeriod   = 30
	schedulerName = "default-scheduler"
)

// Default fills in the spec of a pod or of a template; call it on create and on update. DefaultOfPod is for pods alone.
func Default(s *corev1.PodSpec) {
	defaults.Set(&s.DnsPolicy, "ClusterFirst")
	defaults.Set(&s.RestartPolicy, "Always")
	defaults.Set(&s.SchedulerName, schedulerName)
	defaults.SetPtr(&s.TerminationGracePeriodSeconds, gracePeriod)
	if s.SecurityContext == nil {
		// kubectl debug relies on it.
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	defaults.Set(&s.ServiceAccountName, s.ServiceAccount)
	s.ServiceAccount = s.ServiceAccountName
	defaults.Round(s.Overhead)
	if s.Resources != nil {
		defaults.Round(s.Resources.Limits)
		defaults.Round(s.Resources.Requests)
	}
	defaultVolumes(s.Volumes)
	defaultContainers(s.Containers)
	defaultContainers(s.InitContainers)
	for _, c := range s.EphemeralContainers {
		defaultEphemeralContainer(c)
	}
}

// DefaultOfPod fills in, after Default, what templates leave to the pods that are made of them.
func DefaultOfPod(s *corev1.PodSpec) {
	if *s.TerminationGracePeriodSeconds < 0 {
		// DEL-1: a negative period counts as 1.
		*s.TerminationGracePeriodSeconds = 1
	}
	defaults.SetPtr(&s.EnableServiceLinks, true)
	if s.HostNetwork {
		defaultHostPorts(s.Containers)
		defaultHostPorts(s.InitContainers)
	}
}
