package rest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// piece is how much of a list is gathered before it is written.
const piece = 128 << 10

// pieces writes a long answer in pieces, so that a list needs little memory however long it is.
type pieces struct {
	ex  *exchange
	b   []byte
	err error
	// whole keeps everything together, for encodings that need all of it.
	whole bool
}

// flush writes what has been gathered if that is enough for a piece. It returns false when the client is gone.
func (p *pieces) flush() bool {
	if p.whole || len(p.b) < piece {
		return p.err == nil
	}
	p.write()
	return p.err == nil
}

func (p *pieces) write() {
	if p.err != nil {
		return
	}
	if !p.ex.answered {
		p.ex.begin(p.ex.successCode(), p.ex.out.ContentType())
	}
	p.err = p.ex.guardedWrite(p.b)
	p.b = p.b[:0]
}

// unguarded is the size up to which net/http buffers a write, which then cannot block.
const unguarded = 2 << 10

// guardedWrite writes b and gives up on a client that does not read it in time.
func (ex *exchange) guardedWrite(b []byte) error {
	if len(b) <= unguarded {
		_, err := ex.w.Write(b)
		return err
	}
	guard := time.AfterFunc(ex.h.cfg.StallTimeout, func() {
		_ = http.NewResponseController(ex.w).SetWriteDeadline(time.Now())
	})
	_, err := ex.w.Write(b)
	guard.Stop()
	return err
}

// answerList writes a list in the negotiated form.
func (ex *exchange) answerList(l object.List, buffer *[]byte) error {
	p := &pieces{ex: ex, b: (*buffer)[:0], whole: ex.out.Encoding == negotiate.YAML}
	switch {
	case ex.out.Form == negotiate.Table:
		ex.tableList(p, l)
	case ex.out.Encoding == negotiate.Protobuf:
		if err := ex.protobufList(p, l); err != nil {
			return err
		}
	default:
		ex.jsonList(p, l)
	}
	if p.whole {
		text, err := yaml.JSONToYAML(p.b)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		p.b = text
	}
	if !ex.answered {
		ex.w.Header()["Content-Length"] = []string{strconv.Itoa(len(p.b))}
	}
	p.write()
	*buffer = p.b
	return nil
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
