// Package endpoint holds the rules by which pods become endpoints of services: which pods a service selects, which of
// them are endpoints, on which ports, and what about a pod matters for that. They are Kubernetes' own; the controllers
// of Endpoints and of EndpointSlices share them.
package endpoint

import (
	"fmt"
	"maps"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/phase"
)

// What labels and annotations of services and of their endpoints say.
const (
	// ServiceName is the label of slices that names their service.
	ServiceName = "kubernetes.io/service-name"
	// SliceManager is the label of slices that says who writes them.
	SliceManager = "endpointslice.kubernetes.io/managed-by"
	// SkipMirror is the label of Endpoints that are not to be copied to slices, where it says "true".
	SkipMirror = "endpointslice.kubernetes.io/skip-mirror"
	// Headless is the label of the endpoints of services without a cluster IP.
	Headless = "service.kubernetes.io/headless"
	// TriggerTime is the annotation of endpoints with the time of what they were last changed for.
	TriggerTime = "endpoints.kubernetes.io/last-change-trigger-time"
	// NoAddress is the cluster IP of a service that is to have none.
	NoAddress = "None"
	// ExternalName is the type of services that stand for a name, and have no endpoints.
	ExternalName = "ExternalName"
)

// Selecting says whether the endpoints of a service are pods: it has a selector, and is no other name for something.
func Selecting(s *corev1.Service) bool {
	return len(s.GetSpec().GetSelector()) > 0 && s.GetSpec().GetType() != ExternalName
}

// Selects says whether a service selects pods with the given labels.
func Selects(s *corev1.Service, labels map[string]string) bool {
	if !Selecting(s) {
		return false
	}
	for key, value := range s.GetSpec().GetSelector() {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// HasAddress says whether a service has a cluster IP; without one it is headless.
func HasAddress(s *corev1.Service) bool {
	ip := s.GetSpec().GetClusterIP()
	return ip != "" && ip != NoAddress
}

// Counts says whether a pod that is selected is an endpoint: it has an address, and has not ended.
func Counts(p *corev1.Pod) bool {
	return !phase.Terminal(p) && (p.GetStatus().GetPodIP() != "" || len(p.GetStatus().GetPodIPs()) > 0)
}

// Hostname returns the name of a pod in the domain of a service; "" when it has none there.
func Hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.GetSpec().GetSubdomain() != s.GetMetadata().GetName() ||
		p.GetMetadata().GetNamespace() != s.GetMetadata().GetNamespace() {
		return ""
	}
	return p.GetSpec().GetHostname()
}

// Port returns the port of a pod that a port of a service stands for. It fails when the service names a port that no
// container of the pod has: init containers have ports only where they go on running beside the others.
func Port(p *corev1.Pod, port *corev1.ServicePort) (int32, error) {
	target := port.GetTargetPort()
	if target.GetType() == 0 {
		return target.GetIntVal(), nil
	}
	containers := p.GetSpec().GetContainers()
	for _, c := range p.GetSpec().GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			containers = append(containers[:len(containers):len(containers)], c)
		}
	}
	for _, c := range containers {
		for _, has := range c.GetPorts() {
			if has.GetName() == target.GetStrVal() && has.GetProtocol() == port.GetProtocol() {
				return has.GetContainerPort(), nil
			}
		}
	}
	return 0, fmt.Errorf("pod %s has no port %q for protocol %s",
		p.GetMetadata().GetName(), target.GetStrVal(), port.GetProtocol())
}

// Changed says whether a change of a pod changes the endpoints that it is (itself), and whether it may change of which
// services it is one, or its name there (membership). Most changes of pods do neither.
func Changed(old, now *corev1.Pod) (itself, membership bool) {
	o, n := old.GetMetadata(), now.GetMetadata()
	membership = !maps.Equal(o.GetLabels(), n.GetLabels()) || o.GetUid() != n.GetUid() ||
		old.GetSpec().GetHostname() != now.GetSpec().GetHostname() ||
		old.GetSpec().GetSubdomain() != now.GetSpec().GetSubdomain()
	itself = (o.GetDeletionTimestamp() == nil) != (n.GetDeletionTimestamp() == nil) ||
		availability.Ready(old) != availability.Ready(now) || phase.Terminal(old) != phase.Terminal(now) ||
		old.GetStatus().GetPodIP() != now.GetStatus().GetPodIP() ||
		!slices.EqualFunc(old.GetStatus().GetPodIPs(), now.GetStatus().GetPodIPs(),
			func(a, b *corev1.PodIP) bool { return a.GetIp() == b.GetIp() })
	return itself, membership
}
