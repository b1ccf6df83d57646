package codec

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ProtobufMagic begins every Kubernetes protobuf body.
const ProtobufMagic = "k8s\x00"

// ErrNotProtobuf says that a body does not begin with ProtobufMagic.
var ErrNotProtobuf = errors.New(`the body does not begin with the four bytes "k8s\x00" of Kubernetes protobuf`)

// Field numbers of Unknown and TypeMeta.
const (
	unknownTypeMeta        = 1
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4

	typeMetaAPIVersion = 1
	typeMetaKind       = 2
)

// IsProtobuf says whether data begins like a Kubernetes protobuf body.
func IsProtobuf(data []byte) bool {
	return len(data) >= len(ProtobufMagic) && string(data[:len(ProtobufMagic)]) == ProtobufMagic
}

// AppendProtobuf appends the Kubernetes protobuf form of o. It fails when o cannot be protobuf, that is when
// a string in it is not UTF-8.
func AppendProtobuf(b []byte, o Typed) ([]byte, error) {
	size := proto.Size(o)
	b = appendEnvelope(b, o, size)
	at := len(b)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, o)
	if err != nil {
		return b[:at], fmt.Errorf("encode protobuf: %w", err)
	}
	if len(b)-at != size {
		return b[:at], errors.New("encode protobuf: the object changed while it was encoded")
	}
	return b, nil
}

// AppendProtobufBody appends the Kubernetes protobuf form of an object like o whose plain protobuf encoding
// is known. Only the kind of o is looked at.
func AppendProtobufBody(b []byte, o Typed, body []byte) []byte {
	return append(appendEnvelope(b, o, len(body)), body...)
}

// appendEnvelope appends everything in front of a body of the given size.
func appendEnvelope(b []byte, o Typed, size int) []byte {
	apiVersion, kind := o.TypeMeta()
	b = append(b, ProtobufMagic...)
	b = protowire.AppendTag(b, unknownTypeMeta, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(typeMetaAPIVersion)+protowire.SizeBytes(len(apiVersion))+
		protowire.SizeTag(typeMetaKind)+protowire.SizeBytes(len(kind))))
	b = appendBytes(b, typeMetaAPIVersion, []byte(apiVersion))
	b = appendBytes(b, typeMetaKind, []byte(kind))
	b = protowire.AppendTag(b, unknownRaw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// DecodeProtobuf reads a Kubernetes protobuf body into o, which should be empty. Fields that o does not have
// are dropped, as Kubernetes does. It refuses bodies of another kind, compressed bodies, and strings that
// are not UTF-8.
func DecodeProtobuf(data []byte, o Typed) error {
	if !IsProtobuf(data) {
		return ErrNotProtobuf
	}
	env, err := openEnvelope(data[len(ProtobufMagic):])
	if err != nil {
		return err
	}
	if err := matchKind(env.apiVersion, env.kind, o); err != nil {
		return err
	}
	if len(env.encoding) > 0 {
		return fmt.Errorf("content encoding %q of the protobuf body is not supported", short(env.encoding))
	}
	if len(env.contentType) > 0 && string(env.contentType) != "application/vnd.kubernetes.protobuf" {
		return fmt.Errorf("content type %q within the protobuf body is not supported", short(env.contentType))
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(env.raw, o); err != nil {
		return fmt.Errorf("decode protobuf: %w", err)
	}
	return nil
}

// envelope is an Unknown message. Its byte fields refer to the input.
type envelope struct {
	apiVersion, kind           string
	raw, encoding, contentType []byte
}

// openEnvelope reads an Unknown message without copying what is in it. As protobuf has it, later fields win
// and unknown ones are passed over.
func openEnvelope(b []byte) (envelope, error) {
	var env envelope
	err := eachBytes(b, func(field protowire.Number, v []byte) error {
		switch field {
		case unknownTypeMeta:
			return eachBytes(v, func(field protowire.Number, v []byte) error {
				switch field {
				case typeMetaAPIVersion:
					env.apiVersion = short(v)
				case typeMetaKind:
					env.kind = short(v)
				}
				return nil
			})
		case unknownRaw:
			env.raw = v
		case unknownContentEncoding:
			env.encoding = v
		case unknownContentType:
			env.contentType = v
		}
		return nil
	})
	return env, err
}

// eachBytes calls visit with every length-delimited field of a message.
func eachBytes(b []byte, visit func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("decode protobuf envelope: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, wire, b); n < 0 {
				return fmt.Errorf("decode protobuf envelope: %w", protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("decode protobuf envelope: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(field, v); err != nil {
			return err
		}
	}
	return nil
}

// short bounds what is repeated of the input; names of kinds are far shorter.
func short(b []byte) string {
	const most = 253
	if len(b) > most {
		b = b[:most]
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}
