package rest

import (
	"google.golang.org/protobuf/encoding/protowire"

	"monoplane.dev/apiserver/rest/bodycache"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/codec"
	"monoplane.dev/codec/wire"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// The encodings that the cache keeps.
const (
	bodyJSON bodycache.Form = iota
	bodyProtobuf
)

// appendJSON appends the JSON of an object, or of its metadata. Stored says that o is a stored revision, so
// that its body may be shared; deleted that it comes from a DELETED event.
func (h *Handler) appendJSON(b []byte, o object.Object, form negotiate.Form, deleted, stored bool) []byte {
	if form == negotiate.Metadata {
		return codec.AppendObject(b, &metav1.PartialObjectMetadata{Metadata: o.GetMetadata()})
	}
	if !stored {
		return codec.AppendObject(b, o.(codec.Typed))
	}
	return codec.AppendBody(b, o.(codec.Typed), h.jsonBody(o, deleted))
}

// jsonBody returns the JSON of a stored object without kind and apiVersion.
func (h *Handler) jsonBody(o object.Object, deleted bool) []byte {
	return h.cache.Get(o, bodyJSON, deleted, encodeJSON)
}

func encodeJSON(b []byte, o object.Object) []byte { return o.AppendJSON(b) }

// appendProtobuf appends the Kubernetes protobuf of an object, or of its metadata.
func (h *Handler) appendProtobuf(
	b []byte, o object.Object, form negotiate.Form, deleted, stored bool,
) ([]byte, error) {
	if form == negotiate.Metadata {
		return codec.AppendProtobuf(b, &metav1.PartialObjectMetadata{Metadata: o.GetMetadata()})
	}
	if !stored {
		return codec.AppendProtobuf(b, o.(codec.Typed))
	}
	return codec.AppendProtobufBody(b, o.(codec.Typed), h.protobufBody(o, deleted)), nil
}

// protobufBody returns the plain protobuf of a stored object.
func (h *Handler) protobufBody(o object.Object, deleted bool) []byte {
	return h.cache.Get(o, bodyProtobuf, deleted, encodeProtobuf)
}

// encodeProtobuf cannot fail: what is stored has been protobuf already.
func encodeProtobuf(b []byte, o object.Object) []byte {
	b, _ = wire.Append(b, o)
	return b
}

// appendEnvelope appends what comes before the size bytes of a plain protobuf message in the Kubernetes
// protobuf form: "k8s\0", the kind, and the head of the field that holds the message (see metav1.Unknown).
func appendEnvelope(b []byte, o codec.Typed, size int) []byte {
	const typeMeta, raw, apiVersionField, kindField = 1, 2, 1, 2
	apiVersion, kind := o.TypeMeta()
	var meta []byte
	meta = protowire.AppendTag(meta, apiVersionField, protowire.BytesType)
	meta = protowire.AppendString(meta, apiVersion)
	meta = protowire.AppendTag(meta, kindField, protowire.BytesType)
	meta = protowire.AppendString(meta, kind)
	b = append(b, codec.ProtobufMagic...)
	b = protowire.AppendTag(b, typeMeta, protowire.BytesType)
	b = protowire.AppendBytes(b, meta)
	b = protowire.AppendTag(b, raw, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// Encoded returns how many bodies of stored objects were encoded, rather than found in the cache.
func (h *Handler) Encoded() int64 { return h.cache.Encoded() }
