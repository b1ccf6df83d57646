package validation

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/rules/semantic"
)

// Equal says whether two messages of one type mean the same; see semantic.Equal.
func Equal(a, b proto.Message) bool { return semantic.Equal(a, b) }

// Differences returns the paths of up to limit fields in which a and b differ, below path.
func Differences(a, b protoreflect.Message, path string, limit int) []string {
	return semantic.Differences(a, b, path, limit)
}
