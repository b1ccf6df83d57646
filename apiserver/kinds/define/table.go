package define

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"monoplane.dev/apiserver/table"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// Columns is a table: a column with the name, then these.
type Columns[T object.Object] []Column[T]

// Column is a column of a table and how to fill it.
type Column[T object.Object] struct {
	table.Column
	// cell is called with an object of the kind and the time that ages are told at.
	cell func(o T, now time.Time) any
}

// Text is a column of text.
func Text[T object.Object](name, description string, cell func(T) string) Column[T] {
	return of(name, "string", description, func(o T, _ time.Time) any { return cell(o) })
}

// Integer is a column of numbers.
func Integer[T object.Object](name, description string, cell func(T) int64) Column[T] {
	return of(name, "integer", description, func(o T, _ time.Time) any { return cell(o) })
}

// Bool is a column that says yes or no.
func Bool[T object.Object](name, description string, cell func(T) bool) Column[T] {
	return of(name, "boolean", description, func(o T, _ time.Time) any { return cell(o) })
}

// Any is a column that is called text, as in Kubernetes, but has cells of another type.
func Any[T object.Object](name, description string, cell func(T) any) Column[T] {
	return of(name, "string", description, func(o T, _ time.Time) any { return cell(o) })
}

// Age is the column that says how long ago an object was created.
func Age[T object.Object]() Column[T] {
	return of("Age", "string", "Time since the object was created.", func(o T, now time.Time) any {
		return table.Age(o.GetMetadata().GetCreationTimestamp(), now)
	})
}

// Created is the column that says when an object was created, for kinds that are shown without an age.
func Created[T object.Object]() Column[T] {
	return of("Created At", "date", "Time at which the object was created.", func(o T, _ time.Time) any {
		return value.GoTime(o.GetMetadata().GetCreationTimestamp()).UTC().Format(time.RFC3339)
	})
}

// Elapsed is the column that says how much time passed between two times of an object, or has until now; it is empty
// without the first.
func Elapsed[T object.Object](name, description string, times func(T) (from, to *metav1.Time)) Column[T] {
	return of(name, "string", description, func(o T, now time.Time) any {
		from, to := times(o)
		switch {
		case from == nil:
			return ""
		case to != nil:
			now = value.GoTime(to)
		}
		return duration.HumanDuration(now.Sub(value.GoTime(from)))
	})
}

// Since is the column that says how long ago a time of an object was, or that there is none.
func Since[T object.Object](name, description string, at func(T) *metav1.Time) Column[T] {
	return of(name, "string", description, func(o T, now time.Time) any {
		t := at(o)
		if t == nil {
			return OrNone("")
		}
		return table.Age(t, now)
	})
}

func of[T object.Object](name, kind, description string, cell func(T, time.Time) any) Column[T] {
	return Column[T]{table.Column{Name: name, Type: kind, Description: description}, cell}
}

// Wide returns the column as one that only -o wide shows.
func (c Column[T]) Wide() Column[T] {
	c.Priority = 1
	return c
}

// Columns returns the columns.
func (c Columns[T]) Columns() []table.Column {
	out := []table.Column{table.NameColumn()}
	for _, col := range c {
		out = append(out, col.Column)
	}
	return out
}

// Cells returns the cells of one object.
func (c Columns[T]) Cells(o object.Object, now time.Time) []any {
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

// OrNone returns s, and what stands for nothing when it is empty.
func OrNone(s string) string { return or(s, "<none>") }

// OrUnset returns s, and what stands for a field that is not set when it is empty.
func OrUnset(s string) string { return or(s, "<unset>") }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
