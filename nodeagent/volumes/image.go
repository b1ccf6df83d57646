package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
)

// image is the files of an image. The runtime mounts them; the agent has it pull them.
type image struct{ m *Manager }

func (image) name() string                   { return "kubernetes.io~image" }
func (image) is(v *corev1.VolumeSource) bool { return v.GetImage() != nil }

func (i image) setUp(ctx context.Context, v *volume) (place, error) {
	from := v.source.GetImage()
	switch {
	case from.GetReference() == "":
		return place{}, errors.New("the volume names no image yet")
	case i.m.cfg.Pull == nil:
		return place{}, errors.New("this agent cannot pull images for volumes")
	}
	policy := from.GetPullPolicy()
	if policy == "Always" {
		policy = "IfNotPresent" // pull has just seen to it
	}
	ref, err := i.m.cfg.Pull(ctx, v.pod, from.GetReference(), policy)
	return place{Image: ref, ReadOnly: true}, err
}

// pull sees to it that the images of the pod's volumes are there, before its turn: a pull may take very long.
func (m *Manager) pull(ctx context.Context, p *corev1.Pod) error {
	for _, v := range p.GetSpec().GetVolumes() {
		from := v.GetVolumeSource().GetImage()
		if from.GetReference() == "" || m.cfg.Pull == nil {
			continue
		}
		if _, err := m.cfg.Pull(ctx, p, from.GetReference(), from.GetPullPolicy()); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : failed to pull image %q: %w", v.GetName(),
				from.GetReference(), err)
		}
	}
	return nil
}
