package volumes

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
)

// unsupported says why no plugin takes a volume, by the name of its source.
func unsupported(v *corev1.VolumeSource) string {
	name := "it names no source"
	v.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name = "this agent has no driver for " + field.JSONName() + " volumes"
		return false
	})
	return name
}
