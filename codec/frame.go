package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

// frameHeader is the size of what precedes a frame: its length as four bytes, the most significant first.
const frameHeader = 4

// ErrFrameTooLarge says that a frame is longer than allowed.
var ErrFrameTooLarge = errors.New("the frame is larger than allowed")

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

// ReadFrame reads one frame of at most limit bytes into buf, growing it, and returns it without its header.
// It returns io.EOF when r ends before a frame, and io.ErrUnexpectedEOF when it ends within one.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if int64(size) > int64(limit) {
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrFrameTooLarge, size, limit)
	}
	if cap(buf) < int(size) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}

// DecodeEventFrame takes a WatchEvent, as ReadFrame returns it, apart. Obj is the Kubernetes protobuf body of
// its object and refers to frame.
func DecodeEventFrame(frame []byte) (t object.EventType, obj []byte, err error) {
	err = eachBytes(frame, func(field protowire.Number, v []byte) error {
		switch field {
		case eventType:
			t = object.EventType(short(v))
		case eventObject:
			return eachBytes(v, func(field protowire.Number, v []byte) error {
				if field == extensionRaw {
					obj = v
				}
				return nil
			})
		}
		return nil
	})
	return t, obj, err
}
