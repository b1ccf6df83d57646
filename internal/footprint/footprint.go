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
	layouts map[reflect.Type]*layout
}

// layout is a message's struct: its size and the fields that can hold memory of their own. It is read by offset, which
// takes a tenth of the time of reflection.
type layout struct {
	size  int64
	parts []part
}

type part struct {
	offset uintptr
	kind   kind
	typ    reflect.Type
	// elem is the struct that a pointer, or each of a list, leads to; width is the size of another element.
	elem  *layout
	width uintptr
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

// slice is the head of any slice.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

// The runtime's own share.
const (
	word = 8
	// mapBase is a map without entries. Of its room about half is free.
	mapBase = 48
)

// Of returns the bytes that o takes.
func (m *Meter) Of(o object.Object) int64 { return m.Beside(o, nil) }

// Beside returns the bytes that o takes and next does not share. A nil next shares nothing.
func (m *Meter) Beside(o, next object.Object) int64 {
	if o == nil {
		return 0
	}
	v := reflect.ValueOf(o)
	var shared unsafe.Pointer
	if next != nil {
		if w := reflect.ValueOf(next); w.Type() == v.Type() {
			shared = w.UnsafePointer()
		}
	}
	return m.message(m.layout(v.Type().Elem()), v.UnsafePointer(), shared)
}

// message counts what the struct at p takes and that at q, which may be nil, does not.
func (m *Meter) message(l *layout, p, q unsafe.Pointer) int64 {
	if p == nil || p == q {
		return 0
	}
	n := l.size
	for i := range l.parts {
		f := &l.parts[i]
		var other unsafe.Pointer
		if q != nil {
			other = unsafe.Add(q, f.offset)
		}
		n += m.part(f, unsafe.Add(p, f.offset), other)
	}
	return n
}

// part counts what the field at p holds and that at q, which may be nil, does not.
func (m *Meter) part(f *part, p, q unsafe.Pointer) int64 {
	switch f.kind {
	case text:
		return textBytes((*string)(p), (*string)(q))
	case pointer, message:
		v := *(*unsafe.Pointer)(p)
		var w unsafe.Pointer
		if q != nil {
			w = *(*unsafe.Pointer)(q)
		}
		switch {
		case v == nil || v == w:
			return 0
		case f.kind == message:
			return m.message(f.elem, v, w)
		case f.typ.Elem().Kind() == reflect.String:
			return rounded(f.width) + textBytes((*string)(v), nil)
		default:
			return rounded(f.width)
		}
	case list, texts, messages:
		return m.list(f, (*slice)(p), (*slice)(q))
	case dict:
		if v := *(*unsafe.Pointer)(p); v == nil || q != nil && v == *(*unsafe.Pointer)(q) {
			return 0
		}
		w := reflect.Value{}
		if q != nil {
			w = reflect.NewAt(f.typ, q).Elem()
		}
		return m.dict(reflect.NewAt(f.typ, p).Elem(), w)
	default: // a oneof holds a pointer to a struct of one field
		v := reflect.NewAt(f.typ, p).Elem().Elem()
		if !v.IsValid() {
			return 0
		}
		var shared unsafe.Pointer
		if q != nil {
			if w := reflect.NewAt(f.typ, q).Elem().Elem(); w.IsValid() && w.Type() == v.Type() {
				shared = w.UnsafePointer()
			}
		}
		return m.message(m.layout(v.Type().Elem()), v.UnsafePointer(), shared)
	}
}

func (m *Meter) list(f *part, v, w *slice) int64 {
	if v.cap == 0 || w != nil && v.data == w.data && v.len == w.len {
		return 0
	}
	n := rounded(uintptr(v.cap) * f.width)
	if f.kind == list {
		return n
	}
	for i := range v.len {
		at := uintptr(i) * f.width
		var other unsafe.Pointer
		if w != nil && i < w.len {
			other = unsafe.Add(w.data, at)
		}
		switch {
		case f.kind == texts:
			n += textBytes((*string)(unsafe.Add(v.data, at)), (*string)(other))
		case other == nil:
			n += m.message(f.elem, *(*unsafe.Pointer)(unsafe.Add(v.data, at)), nil)
		default:
			n += m.message(f.elem, *(*unsafe.Pointer)(unsafe.Add(v.data, at)), *(*unsafe.Pointer)(other))
		}
	}
	return n
}

func (m *Meter) dict(v, w reflect.Value) int64 {
	n := mapBase + int64(v.Len())*int64(v.Type().Key().Size()+v.Type().Elem().Size())*2
	if entries, ok := v.Interface().(map[string]string); ok {
		var others map[string]string
		if w.IsValid() {
			others, _ = w.Interface().(map[string]string)
		}
		for key, value := range entries {
			other := others[key]
			n += rounded(uintptr(len(key))) + textBytes(&value, &other)
		}
		return n
	}
	for it := v.MapRange(); it.Next(); {
		if it.Key().Kind() == reflect.String {
			n += rounded(uintptr(it.Key().Len()))
		}
		var other unsafe.Pointer
		if w.IsValid() {
			if g := w.MapIndex(it.Key()); g.IsValid() && (g.Kind() == reflect.Pointer || g.Kind() == reflect.Slice) {
				other = g.UnsafePointer()
			}
		}
		switch e := it.Value(); {
		case e.Kind() == reflect.Pointer:
			n += m.message(m.layout(e.Type().Elem()), e.UnsafePointer(), other)
		case e.Kind() == reflect.Slice && e.UnsafePointer() != other:
			n += rounded(uintptr(e.Cap()))
		}
	}
	return n
}

// textBytes counts a string, unless w is the very same.
func textBytes(v, w *string) int64 {
	if *v == "" || w != nil && unsafe.StringData(*w) == unsafe.StringData(*v) {
		return 0
	}
	return rounded(uintptr(len(*v)))
}

func rounded(n uintptr) int64 { return int64((n + word - 1) &^ (word - 1)) }

// layout returns how a struct is laid out.
func (m *Meter) layout(t reflect.Type) *layout {
	if l := m.layouts[t]; l != nil {
		return l
	}
	if m.layouts == nil {
		m.layouts = map[reflect.Type]*layout{}
	}
	l := &layout{size: rounded(t.Size())}
	m.layouts[t] = l // before its fields, which may be of its own type
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && f.Name != "unknownFields" {
			continue
		}
		p := part{offset: f.Offset, typ: f.Type}
		switch f.Type.Kind() {
		case reflect.String:
			p.kind = text
		case reflect.Pointer:
			p.kind, p.width = pointer, f.Type.Elem().Size()
			if f.Type.Elem().Kind() == reflect.Struct {
				p.kind, p.elem = message, m.layout(f.Type.Elem())
			}
		case reflect.Slice:
			p.kind, p.width = list, f.Type.Elem().Size()
			switch e := f.Type.Elem(); {
			case e.Kind() == reflect.String:
				p.kind = texts
			case e.Kind() == reflect.Pointer:
				p.kind, p.elem = messages, m.layout(e.Elem())
			}
		case reflect.Map:
			p.kind = dict
		case reflect.Interface:
			p.kind = choice
		default:
			continue
		}
		l.parts = append(l.parts, p)
	}
	return l
}
