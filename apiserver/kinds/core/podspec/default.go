package podspec

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/rules/grace"

	corev1 "monoplane.dev/api/core/v1"
)

const schedulerName = "default-scheduler"

// Default fills in the spec of a pod or of a template; call it on create and on update. DefaultOfPod is for pods
// alone.
func Default(s *corev1.PodSpec) {
	defaults.Set(&s.DnsPolicy, "ClusterFirst")
	defaults.Set(&s.RestartPolicy, "Always")
	defaults.Set(&s.SchedulerName, schedulerName)
	defaults.SetPtr(&s.TerminationGracePeriodSeconds, grace.Default)
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
		*s.TerminationGracePeriodSeconds = grace.Asked(*s.TerminationGracePeriodSeconds)
	}
	defaults.SetPtr(&s.EnableServiceLinks, true)
	if s.HostNetwork {
		defaultHostPorts(s.Containers)
		defaultHostPorts(s.InitContainers)
	}
}
