// Package footprint says how much memory an object takes, so that what keeps old states can be bounded in bytes that
// mean something: a body of a megabyte may be a megabyte of text, or ten of small fields.
//
// It counts what Go allocates for the structs, lists, maps and strings of a message, rounded as the allocator rounds
// roughly. What another state of the object shares is left out, because it lives on anyway; a part that is the same in
// both is skipped as a whole, so that a count takes as long as what has changed is large.
package footprint

import (
	"reflect"
	"unsafe"

	"monoplane.dev/object"
)

// Meter counts. It remembers how messages are laid out, and is for one goroutine at a time.
type Meter struct {
	layouts map[reflect.Type][]part
}

// part is a field that can hold memory of its own.
type part struct {
	index int
	kind  kind
}

type kind uint8

const (
	text     kind = iota
	pointer       // to a scalar
	message       // pointer to a struct
	list          // of scalars or bytes
	texts         // list of strings
	messages      // list of pointers to structs
	dict          // map
	choice        // oneof
)

// The runtime's own share.
const (
	word = 8
	// mapBase is a map without entries. Of its room a third is free on average.
	mapBase = 48
)

// Of returns the bytes that o takes.
func (m *Meter) Of(o object.Object) int64 { return m.Beside(o, nil) }

// Beside returns the bytes that o takes and next does not share. A nil next shares nothing.
func (m *Meter) Beside(o, next object.Object) int64 {
	if o == nil {
		return 0
	}
	if m.layouts == nil {
		m.layouts = map[reflect.Type][]part{}
	}
	v := reflect.ValueOf(o)
	var w reflect.Value
	if next != nil {
		w = reflect.ValueOf(next)
		if w.Type() != v.Type() {
			w = reflect.Value{}
		}
	}
	return m.message(v, w)
}

// message counts what pointer v leads to and w, which is invalid or of the same type, does not.
func (m *Meter) message(v, w reflect.Value) int64 {
	if v.IsNil() {
		return 0
	}
	if w.IsValid() {
		if w.IsNil() {
			w = reflect.Value{}
		} else if w.UnsafePointer() == v.UnsafePointer() {
			return 0
		}
	}
	v = v.Elem()
	n := rounded(v.Type().Size())
	for _, p := range m.layout(v.Type()) {
		f := v.Field(p.index)
		var g reflect.Value
		if w.IsValid() {
			g = w.Elem().Field(p.index)
		}
		n += m.part(p.kind, f, g)
	}
	return n
}

func (m *Meter) part(k kind, v, w reflect.Value) int64 {
	switch k {
	case text:
		return stringBytes(v, w)
	case message:
		return m.message(v, w)
	}
	if v.IsZero() || w.IsValid() && same(k, v, w) {
		return 0
	}
	switch k {
	case pointer:
		n := rounded(v.Elem().Type().Size())
		if v.Elem().Kind() == reflect.String {
			n += rounded(uintptr(v.Elem().Len()))
		}
		return n
	case list, texts, messages:
		n := rounded(uintptr(v.Cap()) * v.Type().Elem().Size())
		if k == list {
			return n
		}
		for i := range v.Len() {
			var g reflect.Value
			if w.IsValid() && i < w.Len() {
				g = w.Index(i)
			}
			if k == texts {
				n += stringBytes(v.Index(i), g)
			} else {
				n += m.message(v.Index(i), g)
			}
		}
		return n
	case dict:
		return m.dict(v, w)
	default: // a oneof holds a pointer to a struct of one field
		if w.IsValid() && (w.IsNil() || w.Elem().Type() != v.Elem().Type()) {
			w = reflect.Value{}
		}
		if w.IsValid() {
			w = w.Elem()
		}
		return m.message(v.Elem(), w)
	}
}

// same says whether two fields share what they hold.
func same(k kind, v, w reflect.Value) bool {
	switch k {
	case list, texts, messages:
		return v.Len() == w.Len() && v.UnsafePointer() == w.UnsafePointer()
	case choice:
		return false // looked into
	default:
		return v.UnsafePointer() == w.UnsafePointer()
	}
}

func (m *Meter) dict(v, w reflect.Value) int64 {
	n := mapBase + int64(v.Len())*int64(v.Type().Key().Size()+v.Type().Elem().Size())*3/2
	if entries, ok := v.Interface().(map[string]string); ok {
		var other map[string]string
		if w.IsValid() {
			other, _ = w.Interface().(map[string]string)
		}
		for key, value := range entries {
			n += rounded(uintptr(len(key)))
			if was := other[key]; unsafe.StringData(was) != unsafe.StringData(value) {
				n += rounded(uintptr(len(value)))
			}
		}
		return n
	}
	for it := v.MapRange(); it.Next(); {
		if it.Key().Kind() == reflect.String {
			n += rounded(uintptr(it.Key().Len()))
		}
		var g reflect.Value
		if w.IsValid() {
			g = w.MapIndex(it.Key())
		}
		switch e := it.Value(); {
		case e.Kind() == reflect.Pointer:
			n += m.message(e, g)
		case e.Kind() == reflect.Slice && !(g.IsValid() && same(list, e, g)):
			n += rounded(uintptr(e.Cap()))
		}
	}
	return n
}

// stringBytes counts a string, unless w is the very same.
func stringBytes(v, w reflect.Value) int64 {
	s := v.String()
	if s == "" || w.IsValid() && unsafe.StringData(w.String()) == unsafe.StringData(s) {
		return 0
	}
	return rounded(uintptr(len(s)))
}

func rounded(n uintptr) int64 { return int64((n + word - 1) &^ (word - 1)) }

// layout returns the fields of a struct that can hold memory.
func (m *Meter) layout(t reflect.Type) []part {
	if parts, ok := m.layouts[t]; ok {
		return parts
	}
	parts := []part{}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && f.Name != "unknownFields" {
			continue
		}
		if k, ok := kindOf(f.Type); ok {
			parts = append(parts, part{i, k})
		}
	}
	m.layouts[t] = parts
	return parts
}

func kindOf(t reflect.Type) (kind, bool) {
	switch t.Kind() {
	case reflect.String:
		return text, true
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return message, true
		}
		return pointer, true
	case reflect.Slice:
		switch t.Elem().Kind() {
		case reflect.String:
			return texts, true
		case reflect.Pointer:
			return messages, true
		}
		return list, true
	case reflect.Map:
		return dict, true
	case reflect.Interface:
		return choice, true
	}
	return 0, false
}
