package nodeagent

import (
	"context"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/podstate"
)

// pullVolumes sees to it that the images are there whose files are volumes that a container mounts, and returns them
// by the names of the volumes. It says in out why they are not. The pod wants them, for events: as in Kubernetes they
// name no container.
//
// spec: CTR-6, VOL-1
func (j job) pullVolumes(
	ctx context.Context, spec *corev1.Container, sandbox *runtimeapi.PodSandboxConfig, out *podstate.ContainerRun,
) (images map[string]*runtimeapi.ImageSpec, err error) {
	if j.agent.volumes == nil { // nothing is mounted
		return nil, nil
	}
	for _, at := range spec.GetVolumeMounts() {
		from := imageVolume(j.pod, at.GetName())
		if from == nil || images[at.GetName()] != nil {
			continue
		}
		if images == nil {
			if err := j.mountsImages(ctx); err != nil {
				out.Reason = "CreateContainerConfigError"
				return nil, fmt.Errorf("volume %q: %w", at.GetName(), err)
			}
			images = make(map[string]*runtimeapi.ImageSpec)
		}
		ref, reason, err := j.pullImage(ctx, from.GetReference(), from.GetPullPolicy(), "", sandbox)
		if err != nil {
			out.Reason, out.Image = reason, from.GetReference()
			return nil, err
		}
		images[at.GetName()] = &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: from.GetReference()}
	}
	return images, nil
}

// imageVolume returns the image that is the pod's volume of a name; nil if that is something else.
func imageVolume(p *corev1.Pod, name string) *corev1.ImageVolumeSource {
	for _, v := range p.GetSpec().GetVolumes() {
		if v.GetName() == name {
			return v.GetVolumeSource().GetImage()
		}
	}
	return nil
}

// mountsImages returns why the runtime cannot mount images. It would say something about an empty path of the host,
// since to older runtimes the field for images is unknown, and CRI has no word for whether it is known.
func (j job) mountsImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	is, err := j.agent.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("the container runtime does not say which version it is: %s", text(err))
	}
	var major, minor int
	version := is.GetRuntimeVersion()
	if is.GetRuntimeName() != "containerd" {
		return nil
	}
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); err != nil {
		return nil // somebody's own build
	}
	if major < 2 || major == 2 && minor < 1 {
		return fmt.Errorf("containerd mounts images from version 2.1 on, and this is %s", version)
	}
	return nil
}
