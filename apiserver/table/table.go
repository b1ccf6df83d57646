// Package table writes meta.k8s.io/v1 Tables, the form in which kubectl get shows objects: the server chooses
// the columns and fills the cells (spec: CLI-3).
//
// A Definition per kind gives the columns and the cells; Default serves kinds that have none. The package writes
// JSON only, since no client reads tables in protobuf.
package table

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"monoplane.dev/codec/json"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Column describes a column.
type Column struct {
	// Name is the heading.
	Name string
	// Type is "string", "integer", "number", "boolean" or "date".
	Type string
	// Format refines Type; "name" marks the column that names the object.
	Format string
	// Description explains the column.
	Description string
	// Priority is 0 for columns that are always shown and 1 for those of -o wide.
	Priority int32
}

// Definition fills a table of objects of one kind.
type Definition interface {
	// Columns returns the columns, the same ones every time.
	Columns() []Column
	// Cells returns a cell per column: a string, an integer, a bool or nil. It must cope with an object that
	// has nothing but metadata. Ages are as of now.
	Cells(o object.Object, now time.Time) []any
}

// Include says what of its object a row carries.
type Include uint8

// What a row can carry.
const (
	IncludeMetadata Include = iota
	IncludeNone
	IncludeObject
)

// ParseInclude reads the query parameter includeObject.
func ParseInclude(s string) (Include, bool) {
	switch s {
	case "", "Metadata":
		return IncludeMetadata, true
	case "None":
		return IncludeNone, true
	case "Object":
		return IncludeObject, true
	default:
		return IncludeMetadata, false
	}
}

// AppendHead begins a table: everything up to its rows. Without columns it writes null, as the events of a
// watch after the first do.
func AppendHead(b []byte, meta *metav1.ListMeta, columns []Column) []byte {
	b = append(b, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":`...)
	b = meta.AppendJSON(b)
	b = append(b, `,"columnDefinitions":`...)
	if columns == nil {
		return append(b, `null,"rows":[`...)
	}
	b = append(b, '[')
	for i, c := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = json.AppendString(b, c.Name)
		b = append(b, `,"type":`...)
		b = json.AppendString(b, c.Type)
		b = append(b, `,"format":`...)
		b = json.AppendString(b, c.Format)
		b = append(b, `,"description":`...)
		b = json.AppendString(b, c.Description)
		b = append(b, `,"priority":`...)
		b = json.AppendInt(b, int64(c.Priority))
		b = append(b, '}')
	}
	return append(b, `],"rows":[`...)
}

// AppendTail ends a table.
func AppendTail(b []byte) []byte { return append(b, "]}"...) }

// AppendRow appends a row. Object is the JSON of what it carries, nil for nothing.
func AppendRow(b []byte, cells []any, object []byte) []byte {
	b = append(b, `{"cells":[`...)
	for i, c := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCell(b, c)
	}
	b = append(b, `],"object":`...)
	if object == nil {
		b = append(b, "null"...)
	}
	b = append(b, object...)
	return append(b, '}')
}

func appendCell(b []byte, c any) []byte {
	switch c := c.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return json.AppendString(b, c)
	case bool:
		return json.AppendBool(b, c)
	case int:
		return json.AppendInt(b, int64(c))
	case int32:
		return json.AppendInt(b, int64(c))
	case int64:
		return json.AppendInt(b, c)
	default:
		return json.AppendString(b, fmt.Sprint(c))
	}
}

// NameColumn is the column that names the object.
func NameColumn() Column {
	return Column{
		Name: "Name", Type: "string", Format: "name", Description: "Name of the object, unique within its namespace.",
	}
}

// Default is the definition for kinds that have none of their own: name and age.
type Default struct{}

// Columns returns Name and Age.
func (Default) Columns() []Column {
	return []Column{
		NameColumn(),
		{Name: "Age", Type: "string", Description: "Time since the object was created."},
	}
}

// Cells returns the name and the age.
func (Default) Cells(o object.Object, now time.Time) []any {
	return []any{o.GetMetadata().GetName(), Age(o.GetMetadata().GetCreationTimestamp(), now)}
}

// Age writes how long ago t was, as kubectl does: "5m", "3d4h"; "<unknown>" for no time.
func Age(t *metav1.Time, now time.Time) string {
	at := value.GoTime(t)
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}
