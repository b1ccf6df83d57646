package codec

import (
	"encoding/binary"
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"monoplane.dev/object"
)

// Field numbers of WatchEvent and RawExtension.
const (
	eventType   = 1
	eventObject = 2

	extensionRaw = 1
)

// ErrFrameTooLarge says that an object does not fit into a frame.
var ErrFrameTooLarge = errors.New("the object is too large for a frame of a watch")

// AppendEventFrame appends a watch event as protobuf watches carry it: four bytes of length, then a
// WatchEvent whose object is obj, a complete Kubernetes protobuf body.
func AppendEventFrame(b []byte, t object.EventType, obj []byte) ([]byte, error) {
	extension := protowire.SizeTag(extensionRaw) + protowire.SizeBytes(len(obj))
	size := protowire.SizeTag(eventType) + protowire.SizeBytes(len(t)) +
		protowire.SizeTag(eventObject) + protowire.SizeBytes(extension)
	if size > math.MaxInt32 {
		return b, ErrFrameTooLarge
	}
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = protowire.AppendTag(b, eventType, protowire.BytesType)
	b = protowire.AppendString(b, string(t))
	b = protowire.AppendTag(b, eventObject, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(extension))
	b = protowire.AppendTag(b, extensionRaw, protowire.BytesType)
	return protowire.AppendBytes(b, obj), nil
}
