package criconfig

import (
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// Sandbox returns the configuration of the pod's sandbox. logDir is the directory of all pods' logs, empty for
// none. The error, which names the field, is the user's to mend.
func Sandbox(p *corev1.Pod, attempt uint32, logDir string, f Facts) (*runtimeapi.PodSandboxConfig, error) {
	meta := p.GetMetadata()
	restrictions, err := sandboxSecurity(p, f)
	if err != nil {
		return nil, err
	}
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: meta.GetName(), Namespace: meta.GetNamespace(), Uid: meta.GetUid(), Attempt: attempt,
		},
		PortMappings: ports(p),
		Labels:       sandboxLabels(p, f.Owner),
		Annotations:  sandboxAnnotations(p),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    f.CgroupParent,
			SecurityContext: restrictions,
			Sysctls:         sysctls(p.GetSpec().GetSecurityContext()),
		},
	}
	if !p.GetSpec().GetHostNetwork() {
		cfg.Hostname = hostname(p, f) // on the node's network it is the node's, which runtimes refuse to set
	}
	if p.GetSpec().GetRuntimeClassName() != "" {
		cfg.Linux.Resources, cfg.Linux.Overhead = podResources(p.GetSpec())
	}
	if logDir != "" {
		cfg.LogDirectory = filepath.Join(logDir, PodDir(meta.GetNamespace(), meta.GetName(), meta.GetUid()))
	}
	return cfg, nil
}

// sysctls returns the kernel parameters of the pod's namespaces, the last one of a name.
func sysctls(s *corev1.PodSecurityContext) map[string]string {
	if len(s.GetSysctls()) == 0 {
		return nil
	}
	all := make(map[string]string, len(s.GetSysctls()))
	for _, c := range s.GetSysctls() {
		all[c.GetName()] = c.GetValue()
	}
	return all
}

// hostname returns the pod's host name: what the spec says, else its name cut to what a host name may be;
// the node's own for pods on the node's network. spec: NET-1
func hostname(p *corev1.Pod, f Facts) string {
	const most = 63
	spec := p.GetSpec()
	name := p.GetMetadata().GetName()
	switch {
	case spec.GetHostname() != "":
		name = spec.GetHostname()
	case spec.GetHostNetwork() && f.NodeHostname != "":
		return f.NodeHostname
	}
	if len(name) > most {
		name = name[:most]
		for len(name) > 0 && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
			name = name[:len(name)-1]
		}
	}
	return name
}

// hostnameFields lists the fields that ask for a host name. On the node's network they mean nothing, as in Kubernetes.
func hostnameFields(p *corev1.Pod) string {
	spec := p.GetSpec()
	if spec.GetHostNetwork() {
		return ""
	}
	var out []string
	if spec.GetHostname() != "" {
		out = append(out, "hostname")
	}
	if spec.GetSubdomain() != "" {
		out = append(out, "subdomain")
	}
	if spec.GetSetHostnameAsFQDN() {
		out = append(out, "setHostnameAsFQDN")
	}
	return strings.Join(out, ",")
}

func ports(p *corev1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for _, c := range p.GetSpec().GetContainers() {
		for _, port := range c.GetPorts() {
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(port.GetProtocol()), ContainerPort: port.GetContainerPort(),
				HostPort: port.GetHostPort(), HostIp: port.GetHostIP(),
			})
		}
	}
	return out
}

func protocol(name string) runtimeapi.Protocol {
	switch name {
	case "UDP":
		return runtimeapi.Protocol_UDP
	case "SCTP":
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}
