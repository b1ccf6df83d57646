package kinds

import (
	"time"

	"monoplane.dev/apiserver/table"
	"monoplane.dev/object"
)

// moment is the time that ages are told at.
type moment = time.Time

// column is a column and how to fill it.
type column[T object.Object] struct {
	name, kind  string
	priority    int32
	description string
	cell        func(o T, now moment) any
}

// columns is a table: a column with the name, then these.
type columns[T object.Object] []column[T]

// Columns returns the columns.
func (c columns[T]) Columns() []table.Column {
	out := []table.Column{{Name: "Name", Type: "string", Format: "name", Description: "Name of the object, unique within its namespace."}}
	for _, col := range c {
		out = append(out, table.Column{Name: col.name, Type: col.kind, Priority: col.priority, Description: col.description})
	}
	return out
}

// Cells returns the cells of one object.
func (c columns[T]) Cells(o object.Object, now time.Time) []any {
	out := make([]any, 1, len(c)+1)
	out[0] = o.GetMetadata().GetName()
	t, ok := o.(T)
	for _, col := range c {
		if !ok {
			out = append(out, nil)
			continue
		}
		out = append(out, col.cell(t, now))
	}
	return out
}

func age[T object.Object]() column[T] {
	return column[T]{"Age", "string", 0, "Time since the object was created.", func(o T, now moment) any {
		return table.Age(o.GetMetadata().GetCreationTimestamp(), now)
	}}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
