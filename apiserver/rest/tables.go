package rest

import (
	"time"

	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/table"
	"monoplane.dev/codec"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// tableWriter writes the tables of one answer.
type tableWriter struct {
	h       *Handler
	columns []table.Column
	cells   table.Definition
	include table.Include
	now     time.Time
	// stored says that the objects are revisions as they are stored.
	stored  bool
	scratch []byte
}

// tabled says whether what the route answers with has the form of a table, as in Kubernetes: not what is never read,
// such as reviews, nor other parts and actions than these.
func (r *route) tabled() bool {
	switch r.subresource {
	case "", "status", "scale":
		return r.service.Descriptor.Methods().ByName("Get") != nil
	default:
		return false
	}
}

func (ex *exchange) newTable(kind *object.Kind) *tableWriter {
	d, ok := ex.h.tables[kind]
	if !ok {
		d = ex.h.tables[ex.route.service.Kind]
	}
	return &tableWriter{
		h: ex.h, columns: d.columns, cells: d.Definition, include: ex.include, now: ex.h.cfg.Now(), stored: ex.stored(),
	}
}

// appendHead begins a table. The columns are written once; later tables of a watch have none.
func (t *tableWriter) appendHead(b []byte, meta *metav1.ListMeta) []byte {
	b = table.AppendHead(b, meta, t.columns)
	t.columns = nil
	return b
}

func (t *tableWriter) appendRow(b []byte, o object.Object, deleted bool) []byte {
	var carried []byte
	switch t.include {
	case table.IncludeMetadata:
		t.scratch = codec.AppendObject(t.scratch[:0], &metav1.PartialObjectMetadata{Metadata: o.GetMetadata()})
		carried = t.scratch
	case table.IncludeObject:
		t.scratch = t.h.appendJSON(t.scratch[:0], o, negotiate.Whole, deleted, t.stored)
		carried = t.scratch
	case table.IncludeNone:
	}
	return table.AppendRow(b, t.cells.Cells(o, t.now), carried)
}

// tableList writes a list as one table.
func (ex *exchange) tableList(p *pieces, l object.List) {
	t := ex.newTable(ex.route.service.Kind)
	p.b = t.appendHead(p.b, listMeta(l))
	for i := range l.Len() {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		p.b = t.appendRow(p.b, l.At(i), false)
		if !p.flush() {
			return
		}
	}
	p.b = table.AppendTail(p.b)
	p.b = append(p.b, '\n')
}
