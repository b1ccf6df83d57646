package rest

import (
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// appendFrame appends a watch event as the client reads it: a line of JSON, or a protobuf frame behind its
// length.
func (ex *exchange) appendFrame(b []byte, e object.Event) ([]byte, error) {
	if e.Type == object.Error || e.Object == nil {
		return ex.appendErrorFrame(b, e.Status)
	}
	// A bookmark is no revision of any object, so its body must not be shared.
	stored, deleted := e.Type != object.Bookmark, e.Type == object.Deleted
	if ex.out.Encoding == negotiate.Protobuf {
		var err error
		s := &ex.stream
		if s.scratch, err = ex.h.appendProtobuf(s.scratch[:0], e.Object, ex.out.Form, deleted, stored); err != nil {
			return b, err
		}
		return codec.AppendEventFrame(b, e.Type, s.scratch)
	}
	b = append(b, `{"type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","object":`...)
	if ex.out.Form == negotiate.Table {
		b = ex.appendTableEvent(b, e, deleted)
	} else {
		b = ex.h.appendJSON(b, e.Object, ex.out.Form, deleted, stored)
	}
	return append(b, "}\n"...), nil
}

// appendTableEvent appends a table of one row. Only the first table of a watch has columns.
func (ex *exchange) appendTableEvent(b []byte, e object.Event, deleted bool) []byte {
	t := ex.stream.table
	if t == nil {
		t = ex.newTable(e.Object.ObjectKind())
		ex.stream.table = t
	}
	t.now = ex.h.cfg.Now()
	meta := &metav1.ListMeta{ResourceVersion: e.Object.GetMetadata().GetResourceVersion()}
	b = t.appendHead(b, meta)
	if e.Type == object.Bookmark {
		include := t.include
		t.include = table.IncludeMetadata
		b = t.appendRow(b, e.Object, false)
		t.include = include
	} else {
		b = t.appendRow(b, e.Object, deleted)
	}
	return table.AppendTail(b)
}

// appendErrorFrame appends an ERROR event.
func (ex *exchange) appendErrorFrame(b []byte, st *metav1.Status) ([]byte, error) {
	if st == nil {
		st = &metav1.Status{Status: "Failure", Message: "the watch has failed", Reason: "InternalError", Code: 500}
	}
	if ex.out.Encoding == negotiate.Protobuf {
		body, err := codec.AppendProtobuf(nil, st)
		if err != nil {
			return b, err
		}
		return codec.AppendEventFrame(b, object.Error, body)
	}
	b = append(b, `{"type":"ERROR","object":`...)
	b = codec.AppendObject(b, st)
	return append(b, "}\n"...), nil
}
