package criconfig

import (
	"path/filepath"
	"strings"

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
	restrictions, err := security(p, c, f)
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
		Annotations: containerAnnotations(p, c, in),
		Stdin:       c.GetStdin(),
		StdinOnce:   c.GetStdinOnce(),
		Tty:         c.GetTty(),
		StopSignal:  stopSignal(c.GetLifecycle().GetStopSignal()),
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: Resources(p, c, f), SecurityContext: restrictions},
	}
	if podDir != "" {
		cfg.LogPath = LogName(c.GetName(), in.Attempt)
		if path := c.GetTerminationMessagePath(); path != "" {
			cfg.Mounts = append(cfg.Mounts, &runtimeapi.Mount{
				ContainerPath: path, HostPath: filepath.Join(podDir, MessageName(c.GetName(), in.Attempt)),
			})
		}
	}
	if f.HostsFile != "" && !mountsHosts(c) {
		cfg.Mounts = append(cfg.Mounts, &runtimeapi.Mount{
			ContainerPath: HostsPath, HostPath: f.HostsFile, SelinuxRelabel: true,
		})
	}
	return cfg, nil
}

// stopSignal returns the runtime's word for a signal such as "SIGUSR1", which is the same but for the signs of those
// that are counted from others. Anything else leaves it to the image, and to the runtime.
func stopSignal(name string) runtimeapi.Signal {
	if name == "" {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	name = strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
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
