package criconfig

import (
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// Container returns the configuration of one instance of container c of pod p. podDir is the pod's directory
// (with the logs), empty for none. The error, which names the field, is the user's to mend.
func Container(
	p *corev1.Pod, c *corev1.Container, in Instance, imageRef, podDir string, f Facts,
) (*runtimeapi.ContainerConfig, error) {
	e, err := env(p, c, f)
	if err != nil {
		return nil, err
	}
	cfg := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.GetName(), Attempt: in.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: imageRef, UserSpecifiedImage: c.GetImage()},
		Command:     expandAll(c.GetCommand(), e),
		Args:        expandAll(c.GetArgs(), e),
		WorkingDir:  c.GetWorkingDir(),
		Envs:        e.vars,
		Labels:      containerLabels(p, f.Owner, c.GetName()),
		Annotations: containerAnnotations(c, in),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: resources(c),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces(p), MaskedPaths: maskedPaths(), ReadonlyPaths: readonlyPaths(),
			},
		},
	}
	if podDir != "" {
		cfg.LogPath = LogName(c.GetName(), in.Attempt)
		if path := c.GetTerminationMessagePath(); path != "" {
			cfg.Mounts = append(cfg.Mounts, &runtimeapi.Mount{
				ContainerPath: path, HostPath: filepath.Join(podDir, MessageName(c.GetName(), in.Attempt)),
			})
		}
	}
	return cfg, nil
}

func expandAll(list []string, e *environment) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Expand(s, e.lookup)
	}
	return out
}
