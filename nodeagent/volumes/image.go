package volumes

import (
	"context"

	corev1 "monoplane.dev/api/core/v1"
)

// image is the files of an image. The runtime mounts them; whoever starts a container has it pull the image first,
// each time, as it does with the container's own (Starting.Images).
type image struct{}

func (image) name() string                   { return "kubernetes.io~image" }
func (image) is(v *corev1.VolumeSource) bool { return v.GetImage() != nil }

func (image) setUp(context.Context, *volume) (place, error) { return place{ReadOnly: true}, nil }
