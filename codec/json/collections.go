package json

import (
	"slices"
	"strings"
)

// Message is a pointer to a message of type T.
type Message[T any] interface {
	*T
	Value
}

// Messages reads a list of messages into *p, replacing it. A null element is an empty message.
func Messages[T any, P Message[T]](d *Decoder, p *[]P) {
	if d.Null() {
		*p = nil
		return
	}
	if !d.Array() {
		return
	}
	var stack [8]P
	list := stack[:0]
	for d.Next() {
		m := P(new(T))
		m.DecodeJSON(d)
		list = append(list, m)
	}
	*p = own(list)
}

// Strings reads a list of strings into *p, replacing it.
func Strings(d *Decoder, p *[]string) {
	if d.Null() {
		*p = nil
		return
	}
	if !d.Array() {
		return
	}
	var stack [8]string
	list := stack[:0]
	for d.Next() {
		var s string
		d.String(&s)
		list = append(list, s)
	}
	*p = own(list)
}

// Int64s reads a list of integers into *p, replacing it.
func Int64s(d *Decoder, p *[]int64) {
	if d.Null() {
		*p = nil
		return
	}
	if !d.Array() {
		return
	}
	var stack [8]int64
	list := stack[:0]
	for d.Next() {
		var v int64
		d.Int64(&v)
		list = append(list, v)
	}
	*p = own(list)
}

// Int32s reads a list of integers into *p, replacing it.
func Int32s(d *Decoder, p *[]int32) {
	if d.Null() {
		*p = nil
		return
	}
	if !d.Array() {
		return
	}
	var stack [8]int32
	list := stack[:0]
	for d.Next() {
		var v int32
		d.Int32(&v)
		list = append(list, v)
	}
	*p = own(list)
}

// own copies a list that may be on the stack to one of exact size; it is never nil.
func own[T any](list []T) []T {
	return append(make([]T, 0, len(list)), list...)
}

// StringMap reads an object of strings into *p, adding to it; null makes it nil.
func StringMap(d *Decoder, p *map[string]string) {
	into(d, p, func(d *Decoder) string {
		var s string
		d.String(&s)
		return s
	})
}

// BytesMap reads an object of base64 strings into *p, adding to it; null makes it nil.
func BytesMap(d *Decoder, p *map[string][]byte) {
	into(d, p, func(d *Decoder) []byte {
		var b []byte
		d.Bytes(&b)
		return b
	})
}

// MessageMap reads an object of messages into *p, adding to it; null makes it nil.
func MessageMap[T any, P Message[T]](d *Decoder, p *map[string]P) {
	into(d, p, func(d *Decoder) P {
		m := P(new(T))
		m.DecodeJSON(d)
		return m
	})
}

func into[V any](d *Decoder, p *map[string]V, read func(*Decoder) V) {
	if d.Null() {
		*p = nil
		return
	}
	if !d.Object() {
		return
	}
	before := *p // not nil when the field itself is a duplicate
	m := make(map[string]V)
	for d.More() {
		key := d.keep(d.Key())
		if _, dup := m[key]; dup {
			d.duplicate()
		}
		m[key] = read(d)
	}
	for key, v := range before {
		if _, newer := m[key]; !newer {
			m[key] = v
		}
	}
	*p = m
}

// AppendStrings appends a list of strings.
func AppendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}

// AppendStringsOrNull appends a list of strings that is the value of something; an empty one is null.
func AppendStringsOrNull(b []byte, list []string) []byte {
	if len(list) == 0 {
		return append(b, "null"...)
	}
	return AppendStrings(b, list)
}

// AppendInts appends a list of integers.
func AppendInts[T int32 | int64](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendInt(b, int64(v))
	}
	return append(b, ']')
}

// AppendMessages appends a list of messages.
func AppendMessages[T any, P Message[T]](b []byte, list []P) []byte {
	b = append(b, '[')
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.AppendJSON(b)
	}
	return append(b, ']')
}

// AppendStringMap appends an object of strings, sorted by key.
func AppendStringMap(b []byte, m map[string]string) []byte {
	var stack [16]entry[string]
	b = append(b, '{')
	for _, e := range sorted(stack[:0], m) {
		b = append(AppendString(b, e.key), ':')
		b = append(AppendString(b, e.value), ',')
	}
	return Close(b)
}

// AppendBytesMap appends an object of base64 strings, sorted by key.
func AppendBytesMap(b []byte, m map[string][]byte) []byte {
	var stack [16]entry[[]byte]
	b = append(b, '{')
	for _, e := range sorted(stack[:0], m) {
		b = append(AppendString(b, e.key), ':')
		b = append(AppendBytes(b, e.value), ',')
	}
	return Close(b)
}

// AppendMessageMap appends an object of messages, sorted by key.
func AppendMessageMap[T any, P Message[T]](b []byte, m map[string]P) []byte {
	var stack [16]entry[P]
	b = append(b, '{')
	for _, e := range sorted(stack[:0], m) {
		b = append(AppendString(b, e.key), ':')
		b = append(e.value.AppendJSON(b), ',')
	}
	return Close(b)
}

type entry[V any] struct {
	key   string
	value V
}

// sorted appends the entries of m to list, which is empty, by key.
func sorted[V any](list []entry[V], m map[string]V) []entry[V] {
	for key, value := range m {
		list = append(list, entry[V]{key, value})
	}
	if len(list) > 1 {
		slices.SortFunc(list, func(a, b entry[V]) int { return strings.Compare(a.key, b.key) })
	}
	return list
}
