package volumes

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unsupported says why no plugin takes a volume, by the name of its source.
func unsupported(source proto.Message) string {
	why := "it names no source"
	source.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		why = "this agent has no driver for " + field.JSONName() + " volumes"
		return false
	})
	return why
}
