package rest

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// piece is how much of a long answer is gathered before it is written.
const piece = 128 << 10

// pieces writes a long answer in pieces, so that a list needs little memory however long it is.
type pieces struct {
	ex *exchange
	b  []byte
	// whole keeps everything together, for encodings that need all of it.
	whole bool
}

// flush writes what has been gathered if that is enough for a piece. It returns false when the client is gone.
func (p *pieces) flush() bool {
	if !p.whole && len(p.b) >= piece {
		_, _ = p.ex.w.Write(p.b)
		p.b = p.b[:0]
	}
	return !p.ex.w.gone
}

// appendList encodes a list in the negotiated form. Of a long list only the last piece is left when it returns.
func (ex *exchange) appendList(b []byte, l object.List) ([]byte, error) {
	p := &pieces{ex: ex, b: b, whole: ex.out.Encoding == negotiate.YAML || ex.pretty()}
	var err error
	switch {
	case ex.out.Form == negotiate.Table:
		ex.tableList(p, l)
	case ex.out.Encoding == negotiate.Protobuf:
		err = ex.protobufList(p, l)
	default:
		ex.jsonList(p, l)
	}
	return p.b, err
}

func (ex *exchange) jsonList(p *pieces, l object.List) {
	n := l.Len()
	if ex.out.Form == negotiate.Metadata {
		p.b = append(p.b, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":`...)
	} else {
		apiVersion, kind := l.(codec.Typed).TypeMeta()
		p.b = append(p.b, `{"kind":"`...)
		p.b = append(p.b, kind...)
		p.b = append(p.b, `","apiVersion":"`...)
		p.b = append(p.b, apiVersion...)
		p.b = append(p.b, `","metadata":`...)
	}
	p.b = listMeta(l).AppendJSON(p.b)
	p.b = append(p.b, `,"items":[`...)
	for i := range n {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		if o := l.At(i); ex.out.Form == negotiate.Metadata {
			p.b = ex.h.appendJSON(p.b, o, negotiate.Metadata, false, true)
		} else if ex.stored() {
			p.b = append(p.b, ex.h.jsonBody(o, false)...)
		} else {
			p.b = o.AppendJSON(p.b)
		}
		if !p.flush() {
			return
		}
	}
	p.b = append(p.b, "]}\n"...)
}

// protobufList writes a list behind its envelope, whose lengths must be known first.
func (ex *exchange) protobufList(p *pieces, l object.List) error {
	n := l.Len()
	bodies := make([][]byte, n)
	for i := range n {
		o := l.At(i)
		switch {
		case ex.out.Form == negotiate.Metadata:
			var err error
			if bodies[i], err = proto.Marshal(&metav1.PartialObjectMetadata{Metadata: o.GetMetadata()}); err != nil {
				return fmt.Errorf("encode protobuf: %w", err)
			}
		case ex.stored():
			bodies[i] = ex.h.protobufBody(o, false)
		default:
			var err error
			if bodies[i], err = proto.Marshal(o); err != nil {
				return fmt.Errorf("encode protobuf: %w", err)
			}
		}
	}
	meta, err := proto.Marshal(listMeta(l))
	if err != nil {
		return fmt.Errorf("encode protobuf: %w", err)
	}
	const metadataField, itemsField = 1, 2
	size := protowire.SizeTag(metadataField) + protowire.SizeBytes(len(meta))
	for _, b := range bodies {
		size += protowire.SizeTag(itemsField) + protowire.SizeBytes(len(b))
	}
	kind := l.(codec.Typed)
	if ex.out.Form == negotiate.Metadata {
		kind = (*metav1.PartialObjectMetadataList)(nil)
	}
	p.b = appendEnvelope(p.b, kind, size)
	p.b = protowire.AppendTag(p.b, metadataField, protowire.BytesType)
	p.b = protowire.AppendBytes(p.b, meta)
	for _, b := range bodies {
		p.b = protowire.AppendTag(p.b, itemsField, protowire.BytesType)
		p.b = protowire.AppendBytes(p.b, b)
		if !p.flush() {
			return nil
		}
	}
	return nil
}

// listMeta returns the metadata of a list, never nil.
func listMeta(l object.List) *metav1.ListMeta {
	if m := l.GetMetadata(); m != nil {
		return m
	}
	return &metav1.ListMeta{}
}
