package criconfig

import (
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/sysctls"
)

// Sandbox returns the configuration of the pod's sandbox. logDir is the directory of all pods' logs, empty for
// none. The error, which names the field, is the user's to mend.
func Sandbox(p *corev1.Pod, attempt uint32, logDir string, f Facts) (*runtimeapi.PodSandboxConfig, error) {
	meta := p.GetMetadata()
	restrictions, err := sandboxSecurity(p, f)
	if err != nil {
		return nil, err
	}
	dns, _ := DNS(p, f)
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: meta.GetName(), Namespace: meta.GetNamespace(), Uid: meta.GetUid(), Attempt: attempt,
		},
		DnsConfig:    dns,
		PortMappings: ports(p),
		Labels:       sandboxLabels(p, f.Owner),
		Annotations:  sandboxAnnotations(p),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    f.CgroupParent,
			SecurityContext: restrictions,
			Sysctls:         parameters(p.GetSpec().GetSecurityContext()),
			Resources:       sandboxResources(p.GetSpec()),
			Overhead:        overhead(p.GetSpec()),
		},
	}
	if !p.GetSpec().GetHostNetwork() {
		cfg.Hostname = hostname(p, f) // on the node's network it is the node's, which runtimes refuse to set
		if err := checkHostname(cfg.Hostname); err != nil {
			return nil, err
		}
	}
	if logDir != "" {
		cfg.LogDirectory = filepath.Join(logDir, PodDir(meta.GetNamespace(), meta.GetName(), meta.GetUid()))
	}
	return cfg, nil
}

// parameters returns the kernel parameters of the pod's namespaces, the last one of a name. Older runtimes know names
// with dots only.
func parameters(s *corev1.PodSecurityContext) map[string]string {
	if len(s.GetSysctls()) == 0 {
		return nil
	}
	all := make(map[string]string, len(s.GetSysctls()))
	for _, c := range s.GetSysctls() {
		all[sysctls.Dotted(c.GetName())] = c.GetValue()
	}
	return all
}
